"""The commands, in one module per subject."""
