"""Families of losses that need a single file each, in torch."""
