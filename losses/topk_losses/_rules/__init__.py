"""The families of one file, in torch."""
