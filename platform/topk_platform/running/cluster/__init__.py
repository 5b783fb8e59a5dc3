"""A Ray cluster: its address, its nodes, how many trials they can run, and the worker that trains trials."""
