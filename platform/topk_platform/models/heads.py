"""Heads: the last layer, linear or with cosines as outputs; and small networks on the features of a frozen network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from topk_losses import CosineHead

__all__ = ["feature_head", "make_head"]


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


class _RandomView(nn.Module):
    """A layer that picks a view of each sample ``(N, V, d)``: a random view in training, otherwise the first."""

    def forward(self, views: Tensor) -> Tensor:
        if not self.training:
            return views[:, 0]
        chosen = (torch.rand(views.shape[:1], device=views.device) * views.shape[1]).long()
        return views.gather(1, chosen[:, None, None].expand(-1, 1, views.shape[2])).squeeze(1)


def feature_head(
    shape: tuple[int, ...],
    classes: int,
    head: str = "linear",
    layers: int = 0,
    hidden: int = 256,
    dropout: float = 0.0,
) -> nn.Module:
    """Return a head on the features of a frozen network: hidden layers with ReLUs, then the last layer.

    Args:
        shape: ``(d,)``; or ``(V, d)`` for V views of each sample. Training takes a random view each time.
        classes: L.
        head: The last layer, ``"linear"`` or ``"cosine"``.
        layers: The number of hidden layers; 0 for the last layer alone.
        hidden: The number of units in each hidden layer.
        dropout: The share of features and of units that is dropped in training.

    Raises:
        ValueError: if the shape has another number of dimensions, or ``layers`` is negative.

    Example:
        >>> sum(p.numel() for p in feature_head((4, 1280), 100).parameters())
        128100
        >>> sum(p.numel() for p in feature_head((1280,), 100, layers=2, hidden=8).parameters())
        11220
    """
    if len(shape) not in (1, 2):
        raise ValueError(
            f"feature_head takes features (d,) or views of them (V, d), got inputs of shape {shape}"
        )
    if layers < 0:
        raise ValueError(f"feature_head: layers must be at least 0, got {layers}")
    width, parts = shape[-1], [] if len(shape) == 1 else [_RandomView()]
    drop = [nn.Dropout(dropout)] if dropout else []
    stack: list[nn.Module] = [*parts, *drop]
    for _ in range(layers):
        stack += [nn.Linear(width, hidden), nn.ReLU(), *drop]
        width = hidden
    return nn.Sequential(*stack, make_head(width, classes, head))
