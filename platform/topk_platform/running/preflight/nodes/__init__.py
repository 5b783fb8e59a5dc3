"""Checks of a cluster's nodes before a run: all that would stop a study there or change its results."""
