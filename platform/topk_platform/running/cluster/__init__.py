"""A Ray cluster: its address, its nodes, what they can run, and the worker that trains there."""
