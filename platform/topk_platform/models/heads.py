"""Heads, which are the last layer with linear or cosine outputs, and the networks of linear layers that end in one."""

from __future__ import annotations

import math

from torch import nn

from topk_losses import CosineHead

__all__ = ["feature_head", "linear", "make_head", "mlp"]


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


def mlp(
    shape: tuple[int, ...], classes: int, head: str = "linear", hidden: int = 128, depth: int = 1
) -> nn.Module:
    """Return a perceptron with ReLUs: ``depth`` hidden layers of ``hidden`` units, then the head.

    Args:
        shape: The shape of one input, which is flattened.
        classes: L.
        head: ``"linear"`` or ``"cosine"``.
        hidden: The number of units in each hidden layer.
        depth: The number of hidden layers; with 0 the network is linear.

    Example:
        >>> net = mlp((1, 8, 8), 10)
        >>> sum(p.numel() for p in net.parameters())
        9610
    """
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(shape)
    for _ in range(depth):
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers, make_head(width, classes, head))


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
        shape: ``(d,)``.
        classes: L.
        head: The last layer, ``"linear"`` or ``"cosine"``.
        layers: The number of hidden layers; 0 for the last layer alone.
        hidden: The number of units in each hidden layer.
        dropout: The share of features and of units that is dropped in training.

    Raises:
        ValueError: if the shape has another number of dimensions, or ``layers`` is negative.

    Example:
        >>> sum(p.numel() for p in feature_head((1280,), 100).parameters())
        128100
        >>> sum(p.numel() for p in feature_head((1280,), 100, layers=2, hidden=8).parameters())
        11220
    """
    if len(shape) != 1:
        raise ValueError(f"feature_head takes features (d,), got inputs of shape {shape}")
    if layers < 0:
        raise ValueError(f"feature_head: layers must be at least 0, got {layers}")
    width = shape[0]
    drop = [nn.Dropout(dropout)] if dropout else []
    stack: list[nn.Module] = [*drop]
    for _ in range(layers):
        stack += [nn.Linear(width, hidden), nn.ReLU(), *drop]
        width = hidden
    return nn.Sequential(*stack, make_head(width, classes, head))
