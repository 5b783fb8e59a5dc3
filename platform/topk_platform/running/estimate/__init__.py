"""Estimates for a study: its remaining work, the time for it, and the batch sizes that fit into memory."""
