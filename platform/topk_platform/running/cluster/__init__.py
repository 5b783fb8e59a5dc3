"""A Ray cluster: its address, its nodes, and how many trials they can run."""
