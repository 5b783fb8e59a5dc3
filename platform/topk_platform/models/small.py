"""Small networks: a linear classifier, a multi-layer perceptron, and a convolutional network for smoke runs."""

from __future__ import annotations

import math

from torch import nn

from topk_platform.models.heads import make_head

__all__ = ["convnet", "linear", "mlp"]


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


def convnet(
    shape: tuple[int, ...], classes: int, head: str = "linear", width: int = 16, blocks: int = 3
) -> nn.Module:
    """Return blocks of 3×3 convolution, batch norm and ReLU, then the average over the image, then the head.

    Between two blocks, the image's height and width are halved, and the number of channels is doubled.

    Args:
        shape: ``(channels, height, width)``.
        classes: L.
        head: ``"linear"`` or ``"cosine"``.
        width: Channels of the first block.
        blocks: The number of blocks.

    Example:
        >>> sum(p.numel() for p in convnet((3, 32, 32), 100).parameters())
        30196
    """
    layers: list[nn.Module] = []
    channels = shape[0]
    for block in range(blocks):
        wider = width * 2**block
        layers += [nn.Conv2d(channels, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if block < blocks - 1 else []
        channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), make_head(channels, classes, head))
