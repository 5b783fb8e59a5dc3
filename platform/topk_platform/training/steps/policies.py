"""RandAugment and TrivialAugment for whole batches on their device: each image has its own operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional

from topk_platform.specs import RandAugment, TrivialAugment
from topk_platform.training.steps.augment import crop
from topk_platform.training.steps.batches import Batches

__all__ = ["OPERATIONS", "POLICIES", "PolicyBatches", "changed"]

_BINS = 31
_MOST = 255.0
_GREY = (0.2989, 0.587, 0.114)  # the weights of red, green and blue, as in torchvision
_RGB = 3


def _moved(images: Tensor, matrix: Tensor) -> Tensor:
    """Return the images with each pixel (x, y) taken from the pixel nearest to ``matrix · (x, y, 1)``.

    Coordinates are relative to the middle of the image. Pixels from outside are 0.

    Args:
        images: uint8 ``(n, channels, height, width)``.
        matrix: float32 ``(n, 2, 3)``.
    """
    height, width = images.shape[-2:]
    x = torch.linspace(0.5 - width / 2, width / 2 - 0.5, width, device=images.device)
    y = torch.linspace(0.5 - height / 2, height / 2 - 0.5, height, device=images.device)
    across, down = x.expand(height, width), y[:, None].expand(height, width)
    base = torch.stack([across, down, torch.ones_like(across)], -1)
    half = torch.tensor([0.5 * width, 0.5 * height], device=images.device)
    grid = base.view(1, -1, 3).expand(len(images), -1, -1).bmm(matrix.transpose(1, 2) / half)
    grid = grid.view(-1, height, width, 2)
    moved = functional.grid_sample(
        images.float(), grid, mode="nearest", padding_mode="zeros", align_corners=False
    )
    return moved.round().to(images.dtype)


def _matrix(count: Tensor, **entries: Tensor) -> Tensor:
    """Return unit matrices ``(n, 2, 3)`` with some entries, by row and column, set."""
    matrix = torch.eye(2, 3, device=count.device).repeat(len(count), 1, 1)
    for name, values in entries.items():
        matrix[:, int(name[1]), int(name[2])] = values
    return matrix


def _shear_x(images: Tensor, m: Tensor) -> Tensor:
    return _moved(images, _matrix(m, e01=m, e02=m * images.shape[-2] / 2))


def _shear_y(images: Tensor, m: Tensor) -> Tensor:
    return _moved(images, _matrix(m, e10=m, e12=m * images.shape[-1] / 2))


def _translate_x(images: Tensor, m: Tensor) -> Tensor:
    return _moved(images, _matrix(m, e02=-m.trunc()))


def _translate_y(images: Tensor, m: Tensor) -> Tensor:
    return _moved(images, _matrix(m, e12=-m.trunc()))


def _rotate(images: Tensor, m: Tensor) -> Tensor:
    angle = m.double().deg2rad()
    sine, cosine = angle.sin().float(), angle.cos().float()
    return _moved(images, _matrix(m, e00=cosine, e01=-sine, e10=sine, e11=cosine))


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    factor = factor[:, None, None, None]
    return (factor * images + (1 - factor) * other).clamp(0, _MOST).to(images.dtype)


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != _RGB:
        return images.float()
    red, green, blue = images.float().unbind(1)
    return (red * _GREY[0] + green * _GREY[1] + blue * _GREY[2]).floor()[:, None]


def _brightness(images: Tensor, m: Tensor) -> Tensor:
    return (images * (1 + m)[:, None, None, None]).clamp(0, _MOST).to(images.dtype)


def _color(images: Tensor, m: Tensor) -> Tensor:
    return _blend(images, _grey(images), 1 + m) if images.shape[1] == _RGB else images


def _contrast(images: Tensor, m: Tensor) -> Tensor:
    return _blend(images, _grey(images).mean((1, 2, 3), keepdim=True), 1 + m)


def _sharpness(images: Tensor, m: Tensor) -> Tensor:
    channels, height, width = images.shape[1:]
    if min(height, width) < 3:
        return images
    kernel = torch.ones(3, 3, device=images.device)
    kernel[1, 1] = 5
    kernel = (kernel / kernel.sum()).expand(channels, 1, 3, 3)
    smooth = images.float()
    smooth[:, :, 1:-1, 1:-1] = functional.conv2d(images.float(), kernel, groups=channels).round()
    return _blend(images, smooth, 1 + m)


def _posterize(images: Tensor, m: Tensor) -> Tensor:
    kept = (256 - 2 ** (8 - m.round().int())).to(torch.uint8)  # the highest bits
    return images & kept[:, None, None, None]


def _solarize(images: Tensor, m: Tensor) -> Tensor:
    return torch.where(images >= (_MOST * m)[:, None, None, None], 255 - images, images)


def _auto_contrast(images: Tensor, m: Tensor) -> Tensor:
    del m
    from torchvision.transforms.v2 import functional as vision  # noqa: PLC0415 - takes a second to import, and few recipes need it

    done: Tensor = vision.autocontrast(images)
    return done


def _equalize(images: Tensor, m: Tensor) -> Tensor:
    del m
    from torchvision.transforms.v2 import functional as vision  # noqa: PLC0415 - as above

    done: Tensor = vision.equalize(images)
    return done


def _identity(images: Tensor, m: Tensor) -> Tensor:
    del m
    return images


class _Operation(NamedTuple):
    """An operation and its strengths.

    Args:
        change: A function of images ``(n, channels, height, width)`` and a strength for each, which returns the changed
            images.
        usual: RandAugment's strengths at the lowest and the highest bin; None: they depend on the image's size.
        wide: TrivialAugment's strengths at the lowest and the highest bin.
        signed: Whether a random half of the images takes the negative strength.
    """

    change: Callable[[Tensor, Tensor], Tensor]
    usual: tuple[float, float] | None
    wide: tuple[float, float]
    signed: bool


_NONE = (0.0, 0.0)
OPERATIONS: Mapping[str, _Operation] = {
    "Identity": _Operation(_identity, _NONE, _NONE, False),
    "ShearX": _Operation(_shear_x, (0.0, 0.3), (0.0, 0.99), True),
    "ShearY": _Operation(_shear_y, (0.0, 0.3), (0.0, 0.99), True),
    "TranslateX": _Operation(_translate_x, None, (0.0, 32.0), True),
    "TranslateY": _Operation(_translate_y, None, (0.0, 32.0), True),
    "Rotate": _Operation(_rotate, (0.0, 30.0), (0.0, 135.0), True),
    "Brightness": _Operation(_brightness, (0.0, 0.9), (0.0, 0.99), True),
    "Color": _Operation(_color, (0.0, 0.9), (0.0, 0.99), True),
    "Contrast": _Operation(_contrast, (0.0, 0.9), (0.0, 0.99), True),
    "Sharpness": _Operation(_sharpness, (0.0, 0.9), (0.0, 0.99), True),
    "Posterize": _Operation(_posterize, (8.0, 4.0), (8.0, 2.0), False),
    "Solarize": _Operation(_solarize, (1.0, 0.0), (1.0, 0.0), False),
    "AutoContrast": _Operation(_auto_contrast, _NONE, _NONE, False),
    "Equalize": _Operation(_equalize, _NONE, _NONE, False),
}
"""The operations by torchvision's names."""


def _strengths(name: str, bins: Tensor, size: tuple[int, int], wide: bool) -> Tensor:
    """Return an operation's strengths at these bins, each in 0 ... 30, as float32 ``(n,)``."""
    operation = OPERATIONS[name]
    low, high = operation.wide if wide else operation.usual or (0.0, 150 / 331 * size[name == "TranslateX"])
    table = torch.linspace(low, high, _BINS, device=bins.device)
    if name == "Posterize":  # whole bits
        table = 8 - (torch.arange(_BINS, device=bins.device) / ((_BINS - 1) / (low - high))).round()
    return table[bins]


def changed(images: Tensor, policy: RandAugment | TrivialAugment, generator: Generator) -> Tensor:
    """Return the images, each changed by operations drawn for it.

    Args:
        images: uint8 ``(n, channels, height, width)``, with 1 or 3 channels.
        policy: The policy, with the number of operations and their strength.
        generator: The source of randomness, on the images' device.

    Source:
        Cubuk et al., RandAugment, NeurIPS 2020; Müller and Hutter, TrivialAugment, ICCV 2021; the ranges are those of
        torchvision's ``RandAugment`` and ``TrivialAugmentWide``.
    """
    wide = isinstance(policy, TrivialAugment)
    for _ in range(1 if isinstance(policy, TrivialAugment) else policy.operations):
        count, device = len(images), images.device
        drawn = torch.randint(len(OPERATIONS), (count,), generator=generator, device=device)
        bins = torch.randint(_BINS, (count,), generator=generator, device=device)
        signs = torch.randint(2, (count,), generator=generator, device=device) * 2 - 1
        if isinstance(policy, RandAugment):
            bins = torch.full_like(bins, policy.magnitude)
        images = _each(images, drawn, bins, signs, wide)
    return images


def _each(images: Tensor, drawn: Tensor, bins: Tensor, signs: Tensor, wide: bool) -> Tensor:
    result = images.clone()
    size = (images.shape[-2], images.shape[-1])
    numbers = torch.arange(len(OPERATIONS), device=images.device)
    counts = (
        (drawn == numbers[:, None]).sum(1).tolist()
    )  # the only wait for the device: nonzero would wait each time
    groups = torch.split(drawn.argsort(stable=True), counts)
    for (name, operation), rows in zip(OPERATIONS.items(), groups, strict=True):
        if len(rows):
            strengths = _strengths(name, bins[rows], size, wide)
            strengths = strengths * signs[rows] if operation.signed else strengths
            result[rows] = operation.change(images[rows], strengths)
    return result


@dataclass
class PolicyBatches(Batches):
    """Batches whose images are changed by a policy between the crop and the normalisation."""

    def __post_init__(self) -> None:
        given = {one.name: getattr(self, one.name) for one in fields(Batches)}
        self._rest = Batches(**{**given, "augmentation": replace(self.augmentation, crop=0, policy=None)})

    def _augmented(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        how = self.augmentation
        if how.crop:
            inputs = crop(inputs, how.crop, self.changes)
        if how.policy is not None:
            inputs = changed(inputs, how.policy, self.changes)
        return self._rest._augmented(inputs, labels)


POLICIES: dict[str, type[Batches]] = {"RandAugment": PolicyBatches, "TrivialAugment": PolicyBatches}
"""The batches that each policy needs, by the policy's name."""
