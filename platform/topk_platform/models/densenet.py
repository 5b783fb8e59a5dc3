"""DenseNet without bottleneck for 32×32 images, the network of berrada2018 and garcin2022 on CIFAR-100."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from topk_platform.errors import UserError
from topk_platform.models.heads import make_head

__all__ = ["densenet"]


class _DenseLayer(nn.Module):
    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, growth, 3, padding=1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs, self.conv(self.norm(inputs).relu())], 1)


def _transition(channels: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels, channels, 1, bias=False)
    return [nn.BatchNorm2d(channels), nn.ReLU(), convolution, nn.AvgPool2d(2)]


def densenet(
    shape: tuple[int, ...], classes: int, head: str = "linear", depth: int = 40, growth: int = 12
) -> nn.Module:
    """Return DenseNet ``depth``-``growth``: three dense blocks of ``(depth - 4) / 3`` layers, no bottleneck.

    Source:
        G. Huang et al., Densely Connected Convolutional Networks, CVPR 2017, Section 3 and Table 2 (1.0 M
        parameters at 40-12).

    Args:
        shape: ``(channels, height, width)``.
        classes: L.
        head: ``"linear"`` or ``"cosine"``.
        depth: 3n + 4.
        growth: Channels that a layer adds.

    Raises:
        UserError: if the depth is not 3n + 4.

    Example:
        >>> sum(p.numel() for p in densenet((3, 32, 32), 10).parameters())
        1019722
    """
    if depth < 7 or (depth - 4) % 3:
        raise UserError(f"densenet: depth must be 3n + 4 with n at least 1, got {depth}")
    channels = 16
    layers: list[nn.Module] = [nn.Conv2d(shape[0], channels, 3, padding=1, bias=False)]
    for block in range(3):
        layers += _transition(channels) if block else []
        for _ in range((depth - 4) // 3):
            layers.append(_DenseLayer(channels, growth))
            channels += growth
    pool: list[nn.Module] = [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    net = nn.Sequential(*layers, *pool, make_head(channels, classes, head))
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return net
