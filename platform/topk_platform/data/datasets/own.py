"""Users' own data: folders of images, and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from topk_platform.data.arrays import check_finite, to_inputs, to_labels
from topk_platform.data.copies import apart, first_of_each, in_several_classes, same_images, united
from topk_platform.data.dataset import GROUPS, Dataset, Split
from topk_platform.data.folder import data_folder
from topk_platform.data.images.decoding import UnreadableImageError, pool, square
from topk_platform.data.images.listing import FileList
from topk_platform.data.images.own_files import own_files
from topk_platform.data.splits.grouping import check_apart, group_numbers, split_whole_groups
from topk_platform.data.splits.splitting import stratified
from topk_platform.specs.checks import check, first_few, plural

__all__ = ["assembled", "check_numbered", "from_tensors", "image_folder", "of_files"]

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


def image_folder(
    folder: str,
    size: int = 32,
    validation: float = 0.1,
    test: float = 0.1,
    groups: str = "",
    called: str = GROUPS,
    whole_groups: bool = True,
    labels: str = "",
    copies: str = "refuse",
) -> Dataset:
    """Return the images of ``folder / class / image``, in torchvision's ``ImageFolder`` layout.

    Images in folders of a class's folder are images of the class, too. If the folder contains the folders ``train``,
    ``val`` (or ``validation``, ``valid``) and ``test``, these are the splits. The classes are those of ``train``. A
    class may have no image in ``val`` or ``test``; the split's macro accuracies then leave the class out, and ``topk
    plan`` names it. Hidden folders and files are left out, and links to a folder around them. If a split has no folder,
    it is a fixed fraction of each class's training images. Without a folder ``train`` all images are split this way.
    Classes are numbered in the order of their names.

    Args:
        folder: The folder's path in the data folder. An absolute path works too, but it is part of the arms' identity,
            which then differs on another machine.
        size: Images are scaled so that their shorter side has this many pixels, cropped to the square in the middle,
            and kept in memory as RGB, uint8 ``(n, 3, size, size)``.
        validation: The fraction of each class for validation, if there is no folder for it.
        test: The fraction of each class for test, if there is no folder for it.
        groups: The source of each image's group: a pattern of the image's path in the split's folder, such as
            ``"{class}/{group}_*"``; or a CSV file in ``folder``, with a header, and in each line the path of an image
            relative to ``folder`` and its group. Empty for no groups. The same name means the same group in all
            classes.
        called: The name of the groups, in the plural, such as ``"patients"``.
        whole_groups: Whether every group must be in one split only. If not, groups are used only for intervals.
        labels: The path of a table in ``folder`` that names each image's class, and perhaps its split and group, see
            :func:`~topk_platform.data.images.own_files.table_list`; the images are then anywhere in ``folder``. Empty
            where folders are the classes.
        copies: ``"refuse"``: equal images in two of the given splits are an error. ``"drop"``: they are left out of
            training. In splits by fractions, equal images are always in the same split.

    Raises:
        MissingDataError: if there is no such folder or no such CSV file.
        UserError: if an image cannot be read, a class has no training image, a folder beside ``train`` is not named
            after a split, the group of an image is not known, a class has too few images or groups to be split, or two
            splits share a group that must be whole.
    """
    check(size >= 1, f"size must be at least 1 pixel, got {size!r}")
    files, named = own_files("image_folder", data_folder(folder), labels, groups, keep=False)
    pixels = _read(files, size)
    splits = {
        name: Split(pixels[rows], files.labels[rows], names=tuple(files.paths(rows)))
        for name, rows in files.rows.items()
    }
    fractions = {"validation": validation, "test": test}
    return of_files(files, splits, fractions, named, called, whole_groups, copies)


def of_files(
    files: FileList,
    splits: dict[str, Split],
    fractions: dict[str, float],
    named: Mapping[str, str],
    called: str,
    whole_groups: bool,
    copies: str,
) -> Dataset:
    """Return the dataset of a user's files, see :func:`image_folder`.

    Args:
        files: The files.
        splits: The splits that the files are in.
        fractions: The fractions of each class for splits that no file is in.
        named: The group of each file by its path; empty for no groups.
        called: The name of the groups.
        whole_groups: Whether every group must be in one split only.
        copies: ``"refuse"`` or ``"drop"``, see :func:`assembled`.
    """
    if named:
        groups = {name: [named[path] for path in files.paths(rows)] for name, rows in files.rows.items()}
        numbers = group_numbers(groups)
        splits = {name: split.grouped(numbers[name]) for name, split in splits.items()}
    data = assembled(
        splits,
        {name: fraction for name, fraction in fractions.items() if name not in splits},
        names=files.classes,
        groups=called,
        whole_groups=whole_groups,
        copies=copies,
    )
    return replace(data, notes=tuple(filter(None, (*data.notes, files.note))))


def _read(files: FileList, size: int) -> Tensor:
    """Return the images, uint8 ``(n, 3, size, size)``."""
    images = torch.empty((len(files), 3, size, size), dtype=torch.uint8)

    def fill(row: int) -> str | None:
        try:
            images[row] = square(files.path(row), size)
        except UnreadableImageError as error:
            return str(error)
        return None

    broken = [error for error in pool().map(fill, range(len(files))) if error]
    check(
        not broken,
        f"dataset image_folder: {len(broken)} of {len(files)} images cannot be read: {first_few(broken)}. "
        "Repair them or move them out of the folder",
    )
    return images
