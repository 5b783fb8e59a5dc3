"""Splits of samples into training, validation and test, by single samples or by whole groups."""
