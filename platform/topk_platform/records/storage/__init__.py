"""Where results are stored: a folder or an object store, the right to write there, and files with checksums."""
