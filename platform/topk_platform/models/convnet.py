"""A small convolutional network, for tests and smoke runs."""

from __future__ import annotations

from torch import nn

from topk_platform.models.heads import make_head

__all__ = ["convnet"]


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
