"""Repairing a study whose files are damaged."""
