"""Multi-layer perceptron."""

from __future__ import annotations

import math

from torch import nn

from topk_platform.models.heads import make_head

__all__ = ["mlp"]


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
