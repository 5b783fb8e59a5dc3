"""The datasets, one file each."""
