"""Augmentation of whole batches on their device, equal in distribution to torchvision's transforms of one image."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional

from topk_platform.specs import Augmentation

__all__ = ["augment", "crop", "cutout", "flip", "mix"]


def _randint(high: int, count: int, generator: Generator, device: torch.device) -> Tensor:
    return torch.randint(high, (count,), generator=generator, device=device)


def crop(images: Tensor, padding: int, generator: Generator) -> Tensor:
    """Return crops of the images' own size, each at its own random place, after padding with zeros.

    Args:
        images: ``(n, channels, height, width)``.
        padding: The number of zeros added on every side.
        generator: The source of randomness, on the images' device.
    """
    count, channels, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    offsets = 2 * padding + 1
    top, left = (_randint(offsets, count, generator, images.device) for _ in range(2))
    # This is a view of all possible crops, without a copy.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(count, device=images.device), :, top, left].view(
        count, channels, height, width
    )


def flip(images: Tensor, generator: Generator) -> Tensor:
    """Return the images ``(n, channels, height, width)``, each mirrored with probability one half."""
    mirrored = torch.rand(len(images), generator=generator, device=images.device) < 0.5
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


def cutout(images: Tensor, side: int, generator: Generator) -> Tensor:
    """Return the images, each with a square of zeros around a random centre, cut off at the borders.

    Args:
        images: ``(n, channels, height, width)``, normalised: 0 is the mean colour.
        side: The side of the square, in pixels.
        generator: The source of randomness, on the images' device.

    Source:
        DeVries and Taylor, Improved Regularization of Convolutional Neural Networks with Cutout, 2017.
    """
    count, _, height, width = images.shape
    hidden = torch.ones((count, 1, 1), dtype=torch.bool, device=images.device)
    for size, shape in ((height, (count, -1, 1)), (width, (count, 1, -1))):
        first = _randint(size, count, generator, images.device) - side // 2
        pixels = torch.arange(size, device=images.device)
        hidden = hidden & ((pixels >= first[:, None]) & (pixels < first[:, None] + side)).view(shape)
    return images.masked_fill(hidden[:, None], 0)


def augment(images: Tensor, how: Augmentation, generator: Generator) -> Tensor:
    """Return normalised images ``(n, ...)``, mirrored and cut out as ``how`` says; :func:`mix` makes mixtures."""
    if how.flip:
        images = flip(images, generator)
    if how.cutout:
        images = cutout(images, how.cutout, generator)
    return images


def mix(
    inputs: Tensor, labels: Tensor, classes: int, how: Augmentation, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return a batch mixed with itself, shifted by one sample, and soft labels to match.

    Mixup: ``λ x + (1 - λ) x'`` with one λ from Beta(α, α) for the batch. CutMix: a box of the area ``1 - λ`` is
    taken from the other image, and λ is set to the share of the first image that is left.

    Args:
        inputs: ``(n, ...)``.
        labels: int64 ``(n,)``.
        classes: L.
        how: The kind of mixture, and α.
        generator: The source of randomness, on the inputs' device.

    Returns:
        Inputs, and soft labels ``(n, L)`` that sum to 1.

    Source:
        Zhang et al., mixup, ICLR 2018; Yun et al., CutMix, ICCV 2019.
    """
    share = _beta(how.mix_alpha, generator, inputs.device)
    other = inputs.roll(1, 0)
    if how.mix == "mixup":
        mixed = share * inputs + (1 - share) * other
    else:
        mixed, share = _paste(inputs, other, share, generator)
    one_hot = functional.one_hot(labels, classes).to(inputs.dtype)
    return mixed, share * one_hot + (1 - share) * one_hot.roll(1, 0)


def _beta(alpha: float, generator: Generator, device: torch.device) -> Tensor:
    # A quotient of Gamma variables; torch._standard_gamma is the sampler behind torch.distributions.
    pair: Tensor = torch._standard_gamma(torch.full((2,), alpha, device=device), generator=generator)
    return pair[0] / pair.sum()


def _paste(images: Tensor, other: Tensor, share: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    height, width = images.shape[-2:]
    inside = torch.ones((1, 1), dtype=torch.bool, device=images.device)
    for size, shape in ((height, (-1, 1)), (width, (1, -1))):
        centre = _randint(size, 1, generator, images.device)
        half = (0.5 * (1 - share).sqrt() * size).int()
        pixels = torch.arange(size, device=images.device)
        inside = inside & ((pixels >= centre - half) & (pixels < centre + half)).view(shape)
    return torch.where(inside, other, images), 1 - inside.to(images.dtype).mean()
