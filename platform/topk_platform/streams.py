"""Named random streams: the same seed and role give the same numbers in every arm, so arms can be paired."""

from __future__ import annotations

import hashlib

__all__ = ["hashed", "stream_seed"]


def stream_seed(root: int, seed: int, role: str) -> int:
    """Return the 63-bit seed of one stream.

    Args:
        root: The study's root seed.
        seed: The trial's seed, that of its search or its own; see :class:`~topk_platform.specs.Repeats`.
        role: The purpose of the stream, such as ``"batches"``.

    Example:
        >>> stream_seed(0, 1, "batches") == stream_seed(0, 1, "loss")
        False
    """
    return hashed(root, seed, role)


def hashed(*parts: int | str) -> int:
    """Return a 63-bit number that depends on all parts and on their order."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
