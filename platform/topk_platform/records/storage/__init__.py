"""Where results are: a folder or an object store, the right to write there, and files that check themselves."""
