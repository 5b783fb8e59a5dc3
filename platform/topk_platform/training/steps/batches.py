"""Batches of a split, as networks take them, and the current epoch, which can pause after any step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from topk_platform.data import Dataset, Images, Split
from topk_platform.specs import Augmentation
from topk_platform.training.steps.augment import augment, crop, mix

__all__ = ["Batches", "Epoch", "Normalisation", "order_states", "prepared"]


@dataclass(frozen=True)
class Normalisation:
    """Turns uint8 images into ``(x / 255 - mean) / std``, per channel.

    Args:
        scale: ``1 / (255 std)``, ``(channels, 1, 1)``.
        shift: ``-mean / std``, ``(channels, 1, 1)``.
        mean: The mean of each channel, of values in [0, 1].
        std: The standard deviation of each channel, likewise.
    """

    scale: Tensor
    shift: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, dataset: Dataset, device: str) -> Normalisation | None:
        """Return the normalisation by the training images' own mean and deviation, or None if they are not uint8.

        Images in files name their mean and deviation themselves, because reading all of them would take too long.
        """
        images = dataset.train.inputs
        if images.dtype != torch.uint8:
            return None
        mean, std = images.moments if isinstance(images, Images) else _channel_moments(images)
        return cls.by(mean.flatten().tolist(), std.clamp(min=1e-6).flatten().tolist(), device)

    @classmethod
    def by(cls, mean: Sequence[float], std: Sequence[float], device: str = "cpu") -> Normalisation:
        """Return the normalisation by float32 means and deviations, one for each channel."""
        means, stds = torch.tensor(mean)[:, None, None], torch.tensor(std)[:, None, None]
        return cls((1 / (255 * stds)).to(device), (-means / stds).to(device), tuple(mean), tuple(std))

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 images."""
        return torch.addcmul(self.shift, images.float(), self.scale)


def _channel_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    # Counting the 256 values is exact, and needs no copy of the images as floats.
    values = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.stack(
        [torch.bincount(images[:, c].flatten(), minlength=256).double() for c in range(images.shape[1])]
    )
    shares = counts / counts.sum(1, keepdim=True)
    mean = shares @ values
    std = (shares @ values.square() - mean.square()).clamp(min=0).sqrt()
    return mean.float()[:, None, None], std.float()[:, None, None]


@dataclass
class Batches:
    """The augmented batches of a training split, in a new order every epoch.

    Args:
        split: Inputs and labels on the device.
        classes: L.
        size: Samples per batch. A split that is not larger is one batch in its own order.
        augmentation: How a batch is augmented.
        normalisation: The normalisation of uint8 images.
        order: The random stream of orders and windows, on the CPU.
        changes: The random stream of augmentation, on the device.
        channels_last: Whether images come with their channels innermost.
    """

    split: Split
    classes: int
    size: int
    augmentation: Augmentation
    normalisation: Normalisation | None
    order: Generator
    changes: Generator
    channels_last: bool = False

    def __len__(self) -> int:
        return math.ceil(len(self.split) / self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.after(0)

    def after(self, done: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield an epoch's augmented batches without the first ``done``, which are neither taken nor decoded."""
        for inputs, labels, _ in self.taken(done):
            yield self.augmented(inputs, labels)

    def taken(self, done: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield as :meth:`after`, but before augmentation: inputs, labels, and their positions in the split.

        An epoch draws from the stream of orders at its first batch. A batch draws from the stream of augmentation only
        when it is taken. So the state of the second stream depends on the number of batches taken, and not on how many
        images are decoded ahead.
        """
        if isinstance(self.split.inputs, Images):
            yield from self._streamed(self.split.inputs, done)
            return
        if len(self) == 1:
            # A copy, because a network whose first layer works in place would change the data of later epochs.
            labels = self.split.labels
            yield self.split.inputs.clone(), labels, torch.arange(len(labels), device=labels.device)
            return
        order = torch.randperm(len(self.split), generator=self.order)
        order = order.to(self.split.labels.device, non_blocking=True)
        for rows in torch.split(order, self.size)[done:]:
            yield self.split.inputs[rows], self.split.labels[rows], rows

    def _streamed(self, images: Images, done: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        count = len(images)
        order = torch.arange(count) if len(self) == 1 else torch.randperm(count, generator=self.order)
        positions = None
        # Drawn at once, so that it does not depend on how many images are decoded ahead.
        if self.augmentation.window:
            positions = torch.split(torch.rand((count, 2), generator=self.order), self.size)[done:]
        batches = images.stream(torch.split(order, self.size)[done:], positions)
        rows = torch.split(order.to(self.split.labels.device), self.size)[done:]
        for inputs, own in zip(batches, rows, strict=True):
            yield inputs, self.split.labels[own], own

    def augmented(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return a batch as networks take it, augmented."""
        how = self.augmentation
        if how.crop:
            inputs = crop(inputs, how.crop, self.changes)  # as bytes: floats take four times the memory
        inputs = prepared(inputs, self.normalisation, self.channels_last)
        inputs = augment(inputs, how, self.changes)
        if how.mix:
            return mix(inputs, labels, self.classes, how, self.changes)
        return inputs, labels


def prepared(inputs: Tensor, normalisation: Normalisation | None, channels_last: bool = False) -> Tensor:
    """Return inputs as networks take them."""
    if normalisation is not None:
        inputs = normalisation(inputs)
    return inputs.to(memory_format=torch.channels_last) if channels_last and inputs.ndim == 4 else inputs


@dataclass
class Epoch:
    """The batches that are left of an epoch, and the sum of its losses so far.

    Args:
        batches: The batches to come, each some tensors. Keeping them also keeps the images that are already decoded.
        orders: The states of the streams of orders at the epoch's start, from which the same orders are drawn again.
        total: The sum of the losses of the samples so far, float64, ``()`` or ``(members,)``.
    """

    batches: Iterator[tuple[Tensor, ...]]
    orders: list[Tensor]
    total: Tensor


def order_states(epoch: Epoch | None, batches: Sequence[Batches]) -> dict[str, Any]:
    """Return the states from which the batches of the current epoch, or of the next one, are drawn again.

    Args:
        epoch: The current epoch, or None between two epochs.
        batches: The batches of each member.
    """
    if epoch is None:
        return {"orders": [each.order.get_state() for each in batches], "total": None}
    return {"orders": epoch.orders, "total": epoch.total.clone()}
