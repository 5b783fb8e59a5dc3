"""Soft top-K by a threshold: every class's chance to exceed one level, at which the chances sum to K."""
