"""The progress of a running study, for those who watch it."""
