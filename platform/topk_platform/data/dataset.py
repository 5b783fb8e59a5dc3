"""A dataset: three fixed splits of inputs and labels, and the facts about them that losses and tables need."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral

import torch
from torch import Tensor

from topk_platform.data.arrays import check_inputs, class_numbers
from topk_platform.data.images.in_files import Images
from topk_platform.specs.checks import check

__all__ = ["GROUPS", "Dataset", "Split"]

GROUPS = "groups"
"""The default name of groups of samples."""

_SAMPLES_AT_ONCE = 4096
_NUMBERS_AT_ONCE = 2**20  # 341 CIFAR images; DenseNet 40-40 needs 2 GB to score them


@dataclass(frozen=True)
class Split:
    """Inputs ``(n, ...)`` and labels ``(n,)``.

    Args:
        inputs: A tensor of float32 or whole numbers (uint8 means images ``(n, channels, height, width)``), or images in
            files.
        labels: Whole numbers, kept as int64.
        groups: The group of each sample, whole numbers from 0, kept as int64: samples of one typeface, patient or
            photographer resemble one another. None if the groups are not known.
        names: The name of each sample, such as its file's; empty if they have none. Names change no result.

    Raises:
        UserError: if inputs, labels or groups are of another type or shape, or differ in number.
    """

    inputs: Tensor | Images
    labels: Tensor
    groups: Tensor | None = None
    names: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name, part in (("inputs", self.inputs), ("labels", self.labels), ("groups", self.groups)):
            if part is None and name == "groups":
                continue
            check(
                isinstance(part, Tensor) or (name == "inputs" and isinstance(part, Images)),
                f"{name} must be a tensor, got {type(part).__name__}: take torch.as_tensor({name}), or from_tensors",
            )
        object.__setattr__(self, "labels", class_numbers("labels", self.labels))
        if isinstance(self.inputs, Tensor):
            check_inputs(self.inputs)
        check(
            len(self.inputs) == len(self.labels),
            f"inputs and labels must be equal in number, got {len(self.inputs)} and {len(self.labels)}",
        )
        if self.groups is not None:
            self._check_groups(self.groups)

    def _check_groups(self, groups: Tensor) -> None:
        numbers = class_numbers("groups", groups)
        check(
            len(numbers) == len(self.labels),
            f"groups must be one per sample ({len(self.labels)}), got {len(numbers)}",
        )
        least = min(numbers.tolist(), default=0)
        check(least >= 0, f"groups must be numbered from 0 on, got {least}")
        object.__setattr__(self, "groups", numbers)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def tensor(self) -> Tensor:
        """The inputs, for code that needs a tensor.

        Raises:
            TypeError: if the inputs are images in files.
        """
        if isinstance(self.inputs, Images):
            raise TypeError("the inputs must be a tensor, got images in files")
        return self.inputs

    def take(self, indices: Tensor) -> Split:
        """Return the samples at ``indices``."""
        groups = None if self.groups is None else self.groups[indices]
        names = tuple(self.names[row] for row in indices.tolist()) if self.names else ()
        return Split(self.inputs[indices], self.labels[indices], groups, names)

    def name(self, row: int, split: str) -> str:
        """Return a sample's name, or its row in the split of this name. Images in files are named by their files."""
        if isinstance(self.inputs, Images):
            return self.inputs.files.paths(self.inputs.rows[row : row + 1])[0]
        return self.names[row] if self.names else f"{split} row {row}"

    def relabelled(self, labels: Tensor) -> Split:
        """Return the same inputs with other labels."""
        return replace(self, labels=labels)

    def grouped(self, groups: Tensor) -> Split:
        """Return the same samples in these groups."""
        return replace(self, groups=groups)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every byte, or of the list of images in files. Splits with the same hash hold the same samples.

        Groups are not included, because the same samples in other groups are still the same samples.
        """
        state = hashlib.sha256()
        self.hash_into(state)
        return state.hexdigest()[:20]

    def hash_into(self, state: hashlib._Hash) -> None:
        """Update a hash with every byte, or with the list of images in files."""
        for part in (self.inputs, self.labels):
            state.update(f"{part.dtype} {tuple(part.shape)}".encode())
            if isinstance(part, Images):
                state.update(f"{part.resize}\n".encode() + part.description)
            else:
                state.update(part.contiguous().cpu().numpy().tobytes())

    @property
    def at_once(self) -> int:
        """The number of samples that a network scores at once: enough to use the device, few enough for its memory."""
        numbers = math.prod(self.inputs.shape[1:])
        return min(max(_NUMBERS_AT_ONCE // max(numbers, 1), 1), _SAMPLES_AT_ONCE)

    def in_order(self, size: int | None = None) -> Iterator[Tensor]:
        """Yield all inputs in copied batches of ``size``, by default :attr:`at_once`.

        Images in files come in batches of a size of their own, whatever ``size`` is.
        """
        if isinstance(self.inputs, Images):
            yield from self.inputs.in_order()
            return
        for part in torch.split(self.inputs, size or self.at_once):
            yield part.clone()

    def to(self, device: str) -> Split:
        """Return the split on ``device``."""
        groups = None if self.groups is None else self.groups.to(device)
        return Split(self.inputs.to(device), self.labels.to(device), groups, self.names)


@dataclass(frozen=True)
class Dataset:
    """Fixed train, validation and test splits.

    Args:
        train: Training split, the only one that conditions change.
        validation: The split that the search selects on.
        test: The split that is scored once per confirmed run.
        classes: The number of classes L; labels are in ``[0, L)``.
        superclasses: The superclass of each class, if the dataset has superclasses.
        names: The name of each class, shown with results; names change no result.
        groups: The name of the groups of samples, in the plural, such as ``"patients"``.
        notes: Sentences on the data that a user should know, such as files that are not read; they change no result.

    Raises:
        UserError: if a split is empty, a label is outside ``[0, classes)``, the splits' inputs are not of one shape
            and type, the superclasses are not one whole number per class, the names are not one distinct string per
            class, or the groups have a name but no split has groups.
    """

    train: Split
    validation: Split
    test: Split
    classes: int
    superclasses: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    groups: str = GROUPS
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, split in self.splits.items():
            labels = split.labels
            check(len(labels) > 0, f"the {name} split must hold at least one sample")
            check(
                bool(labels.min() >= 0 and labels.max() < self.classes),
                f"{name} labels must lie in [0, {self.classes}), got {int(labels.min())} to {int(labels.max())}",
            )
        kinds = {name: f"{s.inputs.dtype} {tuple(s.inputs.shape[1:])}" for name, s in self.splits.items()}
        check(
            len(set(kinds.values())) == 1,
            f"the inputs of all splits must be of one type and shape, got {kinds}",
        )
        superclasses, names = self.superclasses, self.names
        check(
            superclasses is None
            or (
                len(superclasses) == self.classes and all(isinstance(each, Integral) for each in superclasses)
            ),
            f"superclasses must be a whole number per class ({self.classes}), got {len(superclasses or ())}: "
            f"{(superclasses or ())[:3]}...",
        )
        check(
            names is None
            or (
                len(set(names)) == len(names) == self.classes and all(isinstance(name, str) for name in names)
            ),
            f"names must be a text per class ({self.classes}), each once, got {len(names or ())}: "
            f"{(names or ())[:3]}...",
        )
        self._check_groups()

    def _check_groups(self) -> None:
        check(
            isinstance(self.groups, str) and bool(self.groups.strip()),
            f"groups must be the name of the groups, such as 'patients', got {self.groups!r}: give the group of each "
            "sample to its split, Split(inputs, labels, groups)",
        )
        known = any(split.groups is not None for split in self.splits.values())
        check(
            known or self.groups == GROUPS,
            f"groups have the name {self.groups!r}, but no split has groups: give them with "
            "Split(inputs, labels, groups)",
        )

    @property
    def splits(self) -> dict[str, Split]:
        """The splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def example(self) -> Dataset:
        """The dataset itself: code that reads facts of a population's example takes a dataset, too."""
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes' names: the dataset's own, or else the names of its image folders; empty if it has neither."""
        if self.names is not None:
            return self.names
        images = self.train.inputs
        names = images.files.classes if isinstance(images, Images) else ()
        return names if len(names) == self.classes else ()

    @property
    def class_counts(self) -> Tensor:
        """The number of training samples of each class, int64 ``(classes,)``."""
        return torch.bincount(self.train.labels, minlength=self.classes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every byte of the splits (for images in files, of the list of files) and of the superclasses.

        The groups of training and validation samples are included, because they can decide which samples are trained
        on. Class names are not included, because data with renamed classes are the same data. The groups of test
        samples are not included, because they change only intervals.
        """
        state = hashlib.sha256(repr((self.classes, self.superclasses)).encode())
        for split in (self.train, self.validation, self.test):
            split.hash_into(state)
        for split in (self.train, self.validation):
            if split.groups is not None:
                state.update(b"groups" + split.groups.contiguous().cpu().numpy().tobytes())
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
