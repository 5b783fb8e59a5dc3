"""A dataset: three fixed splits of inputs and labels, with what losses and tables need to know of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from topk_platform.data.images import Images

__all__ = ["Dataset", "Split"]

_SAMPLES_AT_ONCE = 4096
_NUMBERS_AT_ONCE = 2**20  # 341 images of CIFAR: DenseNet 40-40 takes 2 GB to score them


@dataclass(frozen=True)
class Split:
    """Inputs ``(n, ...)``, a tensor or images in files, and int64 labels ``(n,)``."""

    inputs: Tensor | Images
    labels: Tensor

    def __post_init__(self) -> None:
        if self.labels.dtype != torch.int64 or self.labels.ndim != 1:
            raise ValueError(
                f"labels must be int64 of shape (n,), got {self.labels.dtype} {tuple(self.labels.shape)}"
            )
        if len(self.inputs) != len(self.labels):
            raise ValueError(
                f"inputs and labels must be as many, got {len(self.inputs)} and {len(self.labels)}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def tensor(self) -> Tensor:
        """The inputs, for what can do with a tensor only.

        Raises:
            TypeError: if they are images in files.
        """
        if isinstance(self.inputs, Images):
            raise TypeError("the inputs must be a tensor, got images in files")
        return self.inputs

    def take(self, indices: Tensor) -> Split:
        """Return the samples at ``indices``."""
        return Split(self.inputs[indices], self.labels[indices])

    def relabelled(self, labels: Tensor) -> Split:
        """Return the same inputs with other labels."""
        return Split(self.inputs, labels)

    @property
    def at_once(self) -> int:
        """How many samples networks score together: so many that they are busy, and that a deep one's features fit."""
        numbers = math.prod(self.inputs.shape[1:])
        return min(max(_NUMBERS_AT_ONCE // max(numbers, 1), 1), _SAMPLES_AT_ONCE)

    def in_order(self, size: int | None = None) -> Iterator[Tensor]:
        """Return all inputs, in copies of ``size``, by default :attr:`at_once`; files in batches of their own."""
        if isinstance(self.inputs, Images):
            yield from self.inputs.in_order()
            return
        for part in torch.split(self.inputs, size or self.at_once):
            yield part.clone()

    def to(self, device: str) -> Split:
        """Return the split on ``device``."""
        return Split(self.inputs.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Dataset:
    """Fixed train, validation and test splits.

    Args:
        train: Training split; conditions change this one alone.
        validation: What the search selects on.
        test: Scored once per confirmed run.
        classes: The number of classes L; labels lie in ``[0, L)``.
        superclasses: The superclass of each class, where the dataset has them.

    Raises:
        ValueError: if a label lies outside ``[0, classes)`` or the superclasses are not one per class.
    """

    train: Split
    validation: Split
    test: Split
    classes: int
    superclasses: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            labels = getattr(self, name).labels
            if len(labels) == 0:
                raise ValueError(f"the {name} split must hold at least one sample")
            if labels.min() < 0 or labels.max() >= self.classes:
                raise ValueError(
                    f"{name} labels must lie in [0, {self.classes}), got {int(labels.min())} to {int(labels.max())}"
                )
        if self.superclasses is not None and len(self.superclasses) != self.classes:
            raise ValueError(
                f"superclasses must be one per class ({self.classes}), got {len(self.superclasses)}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def class_counts(self) -> Tensor:
        """How many training samples each class has, int64 ``(classes,)``."""
        return torch.bincount(self.train.labels, minlength=self.classes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every byte of the three splits and of the superclasses; of images in files, of the list."""
        state = hashlib.sha256(repr((self.classes, self.superclasses)).encode())
        for split in (self.train, self.validation, self.test):
            for part in (split.inputs, split.labels):
                state.update(f"{part.dtype} {tuple(part.shape)}".encode())
                if isinstance(part, Images):
                    state.update(f"{part.resize}\n".encode() + part.description)
                else:
                    state.update(part.contiguous().cpu().numpy().tobytes())
        return state.hexdigest()[:20]

    def with_train(self, train: Split) -> Dataset:
        """Return the dataset with another training split."""
        return replace(self, train=train)

    def to(self, device: str) -> Dataset:
        """Return the dataset on ``device``."""
        return replace(
            self,
            train=self.train.to(device),
            validation=self.validation.to(device),
            test=self.test.to(device),
        )
