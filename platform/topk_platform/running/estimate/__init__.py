"""Estimates for a study: its remaining work and the time for it."""
