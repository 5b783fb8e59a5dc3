"""The linear classifier without bias, which sawada2020 uses for the points on the ring."""

from __future__ import annotations

import math

from torch import nn

from topk_platform.models.heads import make_head

__all__ = ["linear"]


def linear(shape: tuple[int, ...], classes: int, head: str = "linear") -> nn.Module:
    """Return a linear map from the flattened input to the scores, without bias.

    Args:
        shape: The shape of one input.
        classes: L.
        head: ``"linear"`` or ``"cosine"``.

    Example:
        >>> sum(p.numel() for p in linear((2,), 6).parameters())
        12
    """
    width = math.prod(shape)
    last = nn.Linear(width, classes, bias=False) if head == "linear" else make_head(width, classes, head)
    return nn.Sequential(nn.Flatten(), last)
