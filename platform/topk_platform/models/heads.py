"""The last layer: linear, or the normalised head whose outputs are cosines."""

from __future__ import annotations

from torch import nn

from topk_losses import CosineHead

__all__ = ["make_head"]


def make_head(features: int, classes: int, head: str) -> nn.Module:
    """Return a ``"linear"`` or ``"cosine"`` layer from ``(N, features)`` to scores ``(N, classes)``.

    Raises:
        ValueError: if ``head`` is neither.
    """
    if head == "linear":
        return nn.Linear(features, classes)
    if head == "cosine":
        return CosineHead(features, classes)
    raise ValueError(f"head must be 'linear' or 'cosine', got {head!r}")
