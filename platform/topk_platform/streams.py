"""Named random streams: the same seed and role give the same numbers in every arm, so arms can be paired."""

from __future__ import annotations

import hashlib

__all__ = ["stream_seed"]


def stream_seed(study: str, root: int, seed: int, role: str) -> int:
    """Return the 63-bit seed of one stream.

    Args:
        study: The study's name.
        root: The study's root seed.
        seed: The seed's index within the study.
        role: The purpose of the stream, such as ``"batches"``.

    Example:
        >>> stream_seed("digits", 0, 1, "batches") == stream_seed("digits", 0, 1, "loss")
        False
    """
    text = "\0".join((study, str(root), str(seed), role))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
