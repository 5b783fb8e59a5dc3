"""Networks for images: torchvision's by name, a small one, forms for small images, and DenseNet 40-40 of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from torch import Tensor, nn

from topk_platform.errors import MissingDataError, UserError, unknown_name
from topk_platform.models.heads import make_head

__all__ = [
    "convnet",
    "densenet",
    "densenet121_small",
    "find_weights",
    "resnet18_small",
    "resnet_small",
    "torchvision_model",
]


def torchvision_model(
    shape: tuple[int, ...],
    classes: int,
    head: str = "linear",
    architecture: str = "resnet18",
    weights: str = "",
) -> nn.Module:
    """Return one of torchvision's classifiers. Its last layer is replaced by our head, which is always untrained.

    Args:
        shape: ``(3, height, width)``; unused, because these networks take images of any size.
        classes: L.
        head: ``"linear"`` or ``"cosine"``.
        architecture: A name that ``torchvision.models.list_models`` knows.
        weights: torchvision's name of the weights to start from, such as ``"IMAGENET1K_V1"``; empty for none.

    Raises:
        MissingDataError: if the weights are not on disk.
        UserError: if torchvision has no such classifier or no such weights, or the classifier has no linear layer.

    Example:
        >>> net = torchvision_model((3, 64, 64), 1000, architecture="resnet18")
        >>> sum(p.numel() for p in net.parameters())
        11689512
    """
    del shape
    from torchvision import models  # noqa: PLC0415 - takes a second and 80 MB, which only these networks need

    net: nn.Module = models.get_model(architecture, weights=find_weights(architecture, weights))
    _replace_last(net, classes, head)
    return net


def find_weights(architecture: str = "resnet18", weights: str = "") -> Any:
    """Return torchvision's entry for weights that are on disk, or None if ``weights`` is empty.

    torch keeps its downloads in ``hub/checkpoints`` of ``TORCH_HOME``, by default ``~/.cache/torch``. The weights must
    be in that folder.

    Args:
        architecture: A name that ``torchvision.models.list_models`` knows.
        weights: torchvision's name of the weights, such as ``"IMAGENET1K_V1"``; empty for none.

    Raises:
        MissingDataError: if the weights are not in that folder; nothing is downloaded.
        UserError: if torchvision has no such classifier or no such weights.
    """
    from torchvision import models  # noqa: PLC0415 - as above

    names = models.list_models(module=models)
    if architecture not in names:
        raise unknown_name("torchvision model", architecture, names)
    if not weights:
        return None
    table = models.get_model_weights(architecture)
    if weights not in table.__members__:
        raise unknown_name(f"weights: torchvision model {architecture} has no", weights, table.__members__)
    entry = table[weights]
    path = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(entry.url).path).name
    if not path.is_file():
        raise MissingDataError(
            f"weights {weights} of torchvision model {architecture} are not on disk: get {entry.url} and put it at "
            f"{path}, or name the folder that holds hub/checkpoints with TORCH_HOME"
        )
    return entry


def _replace_last(net: nn.Module, classes: int, head: str) -> None:
    """Replace the last linear layer by the head."""
    linear = [(name, module) for name, module in net.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError(f"{type(net).__name__} has no linear layer that a head could replace")
    name, last = linear[-1]
    parent, _, child = name.rpartition(".")
    setattr(net.get_submodule(parent), child, make_head(last.in_features, classes, head))


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


class _BasicBlock(nn.Module):
    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, wider, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(wider)
        self.conv2 = nn.Conv2d(wider, wider, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(wider)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != wider:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        out = self.norm2(self.conv2(self.norm1(self.conv1(inputs)).relu()))
        total: Tensor = out + self.shortcut(inputs)
        return total.relu()


def resnet18_small(shape: tuple[int, ...], classes: int, head: str = "linear") -> nn.Module:
    """Return ResNet-18 for 32×32 images: a 3×3 first convolution of stride 1 and no pooling before the blocks.

    Args:
        shape: ``(channels, height, width)``.
        classes: L.
        head: ``"linear"`` or ``"cosine"``.

    Source:
        K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016, in the usual form for CIFAR, as
        sawada2020 trains it.

    Example:
        >>> sum(p.numel() for p in resnet18_small((3, 32, 32), 100).parameters())
        11220132
    """
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    channels = 64
    for wider, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_BasicBlock(channels, wider, stride), _BasicBlock(wider, wider, 1)]
        channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), make_head(channels, classes, head))


def resnet_small(
    shape: tuple[int, ...], classes: int, head: str = "linear", depth: int = 14, width: int = 16
) -> nn.Module:
    """Return the residual network for 32×32 images: three stages of ``(depth - 2) / 6`` blocks of two 3×3 convolutions.

    Shortcuts that change the number of channels are 1×1 convolutions. Depth 8 or 14 trains on two cores in minutes.

    Args:
        shape: ``(channels, height, width)``.
        classes: L.
        head: ``"linear"`` or ``"cosine"``.
        depth: 6n + 2.
        width: Channels of the first stage; each later stage has twice as many as the stage before.

    Raises:
        UserError: if the depth is not 6n + 2.

    Source:
        K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016, Section 4.2, with projections as
        shortcuts.

    Example:
        >>> sum(p.numel() for p in resnet_small((3, 32, 32), 10, depth=20).parameters())
        272474
    """
    if depth < 8 or (depth - 2) % 6:
        raise UserError(f"resnet_small: depth must be 6n + 2 with n at least 1, got {depth}")
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    channels = width
    for wider, stride in ((width, 1), (2 * width, 2), (4 * width, 2)):
        for block in range((depth - 2) // 6):
            layers.append(_BasicBlock(channels, wider, 1 if block else stride))
            channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), make_head(channels, classes, head))


def densenet121_small(
    shape: tuple[int, ...], classes: int, head: str = "linear", layers: int = 24
) -> nn.Module:
    """Return DenseNet-121 for 32×32 images: a 3×3 first convolution of stride 1, and no pooling before the blocks.

    Args:
        shape: ``(channels, height, width)``.
        classes: L.
        head: ``"linear"`` or ``"cosine"``.
        layers: The most layers that a block has: with 24 they have 6, 12, 24 and 16, as published.

    Source:
        G. Huang et al., Densely Connected Convolutional Networks, CVPR 2017, Table 1, in the usual form for CIFAR,
        as sawada2020 trains it.

    Example:
        >>> sum(p.numel() for p in densenet121_small((3, 32, 32), 100).parameters())
        7048548
    """
    from torchvision.models import DenseNet  # noqa: PLC0415 - as above

    net: nn.Module = DenseNet(block_config=tuple(min(size, layers) for size in (6, 12, 24, 16)))
    features = net.get_submodule("features")
    features.conv0 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
    for name in ("norm0", "relu0", "pool0"):
        setattr(features, name, nn.Identity())
    _replace_last(net, classes, head)
    return net


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
