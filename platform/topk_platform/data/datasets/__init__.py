"""The datasets, a file each."""
