"""Users' own tensors, and how any splits of a user's own become a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from topk_platform.data.arrays import check_finite, to_inputs, to_labels
from topk_platform.data.dataset import GROUPS, Dataset, Split
from topk_platform.data.grouping import check_apart, group_numbers, split_whole_groups
from topk_platform.data.images.copies import apart, first_of_each, in_several_classes, same_images, united
from topk_platform.data.splitting import stratified
from topk_platform.specs.checks import check, first_few, plural

__all__ = ["assembled", "check_numbered", "from_tensors"]

_SPLIT_SEED = 0
_WITH_GROUPS = 3  # a split is (inputs, labels) or (inputs, labels, groups)


def from_tensors(
    train: tuple[Any, ...],
    validation: tuple[Any, ...] | float = 0.1,
    test: tuple[Any, ...] | float = 0.1,
    superclasses: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    groups: str = GROUPS,
    whole_groups: bool = True,
    copies: str = "refuse",
) -> Dataset:
    """Return a dataset of inputs ``(n, ...)`` and integer labels ``(n,)``, tensors or NumPy arrays.

    A third array may hold the group of each sample, strings or whole numbers ``(n,)``: ``(inputs, labels, patients)``.

    Floating-point inputs of any precision become float32. uint8 inputs are images ``(n, channels, height, width)``.

    Args:
        train: Inputs and labels to train on, and their groups if they have any.
        validation: Inputs and labels for validation, or the fraction of each class's training samples to take for it.
            The order of the samples determines which ones are taken.
        test: Inputs and labels for the test, or the fraction of each class's training samples to take for it.
        superclasses: The superclass of each class, if there are superclasses.
        names: The classes' names, shown with predictions.
        groups: The name of the groups, in the plural, such as ``"patients"``.
        whole_groups: Whether every group must be in one split only. If not, groups are used only for intervals.
        copies: Equal images in two of the given splits, as ``image_folder`` takes it. Rows of numbers may be equal.

    Raises:
        UserError: if labels are not whole numbers or do not number the classes from 0 on without wide gaps, a class
            has too few samples or groups to be split, two splits share a group that must be whole, or :class:`Dataset`
            or :class:`Split` raises it.

    Example:
        >>> inputs, labels = torch.randn(100, 5), torch.arange(100) % 4
        >>> data = from_tensors((inputs, labels), validation=0.2, test=0.2)
        >>> len(data.train), len(data.validation), len(data.test), data.classes
        (60, 20, 20, 4)
    """
    given = {"validation": validation, "test": test}
    fractions = {name: part for name, part in given.items() if isinstance(part, float | int)}
    splits = {
        name: _split(name, pair) for name, pair in ({"train": train} | given).items() if name not in fractions
    }
    check_numbered(torch.cat([split.labels for split in splits.values()]))
    named = {
        name: pair[2]
        for name, pair in ({"train": train} | given).items()
        if isinstance(pair, tuple | list) and len(pair) == _WITH_GROUPS
    }
    splits |= {name: splits[name].grouped(numbers) for name, numbers in group_numbers(named).items()}
    return assembled(splits, fractions, superclasses, names, groups, whole_groups, copies)


def check_numbered(labels: Tensor) -> None:
    """Raise ``UserError`` unless labels number classes from 0: at least every second number must occur."""
    present = torch.unique(labels)
    check(len(present) > 0, "inputs and labels must hold at least one sample, got none")
    low, high = int(present[0]), int(present[-1])
    odd = present[(present < 0) | (present >= 2 * len(present))].tolist()
    hint = f", among them {first_few([str(label) for label in odd])}" if odd else ""
    hint += ": take labels - 1" if low == 1 else ""
    check(
        low == 0 and 1 + high <= 2 * len(present),
        f"labels must number the classes from 0 on, and at least every second number must have a sample, got "
        f"{len(present)} different labels from {low} to {high}{hint}",
    )


def assembled(
    splits: dict[str, Split],
    fractions: dict[str, float],
    superclasses: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    groups: str = GROUPS,
    whole_groups: bool = True,
    copies: str = "refuse",
) -> Dataset:
    """Return the dataset of the given splits; the missing splits are taken from training and share no image with it.

    Args:
        splits: ``train``, and ``validation`` and ``test`` if they exist.
        fractions: For each missing split, the fraction of each class's training samples to take.
        superclasses: The superclass of each class, if there are superclasses.
        names: The name of each class, if the classes have names. A class may have no sample.
        groups: The name of the groups of samples, if the splits have groups.
        whole_groups: Whether every group must be in one split only.
        copies: ``"refuse"``: an image in two of the given splits is an error. ``"drop"``: it is left out of training.

    Raises:
        UserError: if a class has too few samples or groups to be split, or two splits share a group that must be whole,
            or an image.
    """
    check(copies in ("refuse", "drop"), f"copies must be 'refuse' or 'drop', got {copies!r}")
    numbers = same_images(splits)
    note = in_several_classes(splits, numbers)
    kept = apart(splits, numbers, drop=copies == "drop")
    dropped = {
        name: len(splits[name]) - len(rows) for name, rows in kept.items() if len(rows) < len(splits[name])
    }
    splits = {name: split.take(kept[name]) if name in dropped else split for name, split in splits.items()}
    splits |= _taken(splits["train"], numbers["train"][kept["train"]], fractions, names, whole_groups)
    if whole_groups:
        check_apart(splits)
    occurring = 1 + max(int(split.labels.max()) for split in splits.values() if len(split))
    left_out = [
        f"{plural(count, 'image')} left out of {name}, because a later split has them"
        for name, count in dropped.items()
    ]
    return Dataset(
        splits["train"],
        splits["validation"],
        splits["test"],
        classes=max(occurring, len(names or ())),
        superclasses=None
        if superclasses is None
        else tuple(to_labels("superclasses", superclasses).tolist()),
        names=None if names is None else tuple(names),
        groups=groups,
        notes=tuple(filter(None, [note, *left_out])),
    )


def _split(name: str, pair: Any) -> Split:
    check(
        isinstance(pair, tuple | list) and len(pair) in (2, _WITH_GROUPS),
        f"{name} must be (inputs, labels) or (inputs, labels, groups)"
        f"{'' if name == 'train' else ' or a fraction of training'}, "
        f"got {f'{len(pair)} parts' if isinstance(pair, tuple | list) else type(pair).__name__}",
    )
    inputs = to_inputs(f"{name} inputs", pair[0])
    check_finite("inputs", inputs, f"of the given {name} inputs")
    return Split(inputs, to_labels(f"{name} labels", pair[1]))


def _taken(
    train: Split, copies: Tensor, fractions: dict[str, float], names: Sequence[str] | None, whole_groups: bool
) -> dict[str, Split]:
    """Return the splits that are taken from training; copies of an image stay together."""
    if not fractions:
        return {"train": train}
    generator = Generator().manual_seed(_SPLIT_SEED)
    shares = tuple(fractions.values())
    unique = first_of_each(copies)
    several = len(unique) < len(copies)
    if whole_groups and train.groups is not None:
        groups = united(train.groups, copies) if several else train.groups
        rows = split_whole_groups(train.labels, groups, shares, generator, names)
    else:
        rows = [unique[part] for part in stratified(train.labels[unique], shares, generator, names)]
        if several:
            rows = [torch.isin(copies, copies[part]).nonzero()[:, 0] for part in rows]
    return {name: train.take(part) for name, part in zip(("train", *fractions), rows, strict=True)}
