"""A Ray of our own on this machine, from its start to its end."""
