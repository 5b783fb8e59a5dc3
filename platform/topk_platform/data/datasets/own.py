"""Users' own data: folders of images, and tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from topk_platform.data.arrays import to_inputs, to_labels
from topk_platform.data.dataset import GROUPS, Dataset, Split
from topk_platform.data.folder import data_folder
from topk_platform.data.images.decoding import UnreadableImageError, square
from topk_platform.data.images.listing import ENDINGS, class_folders, images_below
from topk_platform.data.splits.grouping import check_apart, group_numbers, grouped_files, split_whole_groups
from topk_platform.data.splits.splitting import stratified
from topk_platform.errors import MissingDataError
from topk_platform.specs.checks import check, first_few

__all__ = ["HELD_OUT", "assembled", "check_numbered", "from_tensors", "image_folder", "split_folders"]

_SPLIT_SEED = 0
_WITH_GROUPS = 3  # a split is (inputs, labels) or (inputs, labels, groups)
HELD_OUT = {"validation": ("validation", "val", "valid"), "test": ("test",)}
"""The names of the folders and files of the splits that are not for training."""
_SPLITS = ("train", *(name for names in HELD_OUT.values() for name in names))


def from_tensors(
    train: tuple[Any, ...],
    validation: tuple[Any, ...] | float = 0.1,
    test: tuple[Any, ...] | float = 0.1,
    superclasses: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    groups: str = GROUPS,
    whole_groups: bool = True,
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
    return assembled(splits, fractions, superclasses, names, groups, whole_groups)


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
) -> Dataset:
    """Return the dataset of the given splits; the missing splits are taken from training.

    Args:
        splits: ``train``, and ``validation`` and ``test`` if they exist.
        fractions: For each missing split, the fraction of each class's training samples to take.
        superclasses: The superclass of each class, if there are superclasses.
        names: The name of each class, if the classes have names. A class may have no sample.
        groups: The name of the groups of samples, if the splits have groups.
        whole_groups: Whether every group must be in one split only.

    Raises:
        UserError: if a class has too few samples or groups to be split, or two splits share a group that must be whole.
    """
    splits = splits | _taken(splits["train"], fractions, names, whole_groups)
    if whole_groups:
        check_apart(splits)
    occurring = 1 + max(int(split.labels.max()) for split in splits.values() if len(split))
    classes = max(occurring, len(names or ()))
    return Dataset(
        splits["train"],
        splits["validation"],
        splits["test"],
        classes=classes,
        superclasses=None
        if superclasses is None
        else tuple(to_labels("superclasses", superclasses).tolist()),
        names=None if names is None else tuple(names),
        groups=groups,
    )


def _split(name: str, pair: Any) -> Split:
    check(
        isinstance(pair, tuple | list) and len(pair) in (2, _WITH_GROUPS),
        f"{name} must be (inputs, labels) or (inputs, labels, groups)"
        f"{'' if name == 'train' else ' or a fraction of training'}, "
        f"got {f'{len(pair)} parts' if isinstance(pair, tuple | list) else type(pair).__name__}",
    )
    return Split(to_inputs(f"{name} inputs", pair[0]), to_labels(f"{name} labels", pair[1]))


def _taken(
    train: Split, fractions: dict[str, float], names: Sequence[str] | None, whole_groups: bool
) -> dict[str, Split]:
    if not fractions:
        return {"train": train}
    generator = Generator().manual_seed(_SPLIT_SEED)
    shares = tuple(fractions.values())
    if whole_groups and train.groups is not None:
        rows = split_whole_groups(train.labels, train.groups, shares, generator, names)
    else:
        rows = stratified(train.labels, shares, generator, names)
    return {name: train.take(part) for name, part in zip(("train", *fractions), rows, strict=True)}


def image_folder(
    folder: str,
    size: int = 32,
    validation: float = 0.1,
    test: float = 0.1,
    groups: str = "",
    called: str = GROUPS,
    whole_groups: bool = True,
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

    Raises:
        MissingDataError: if there is no such folder or no such CSV file.
        UserError: if an image cannot be read, a class has no training image, a folder beside ``train`` is not named
            after a split, the group of an image is not known, a class has too few images or groups to be split, or two
            splits share a group that must be whole.
    """
    check(size >= 1, f"size must be at least 1 pixel, got {size!r}")
    root = data_folder() / folder
    if not root.is_dir():
        raise MissingDataError(
            f"dataset image_folder: there is no folder {root}. Put the images there as {folder}/CLASS/IMAGE or "
            f"{folder}/train/CLASS/IMAGE, or name the folder that holds {folder} with --data DIR or TOPK_DATA"
        )
    folders = split_folders(root)
    training = _ImageList.of_training(folders["train"])
    splits = {"train": training} | {n: training.held_out(f) for n, f in folders.items() if n != "train"}
    names = training.classes
    parts = {name: Split(*images.read(size)) for name, images in splits.items()}
    if groups:
        paths = {name: [Path(p).relative_to(root).as_posix() for p in i.paths] for name, i in splits.items()}
        within = {name: folder.relative_to(root).as_posix() for name, folder in folders.items()}
        parts = grouped_files(parts, paths, within, root, groups)
    fractions = {n: f for n, f in {"validation": validation, "test": test}.items() if n not in parts}
    return assembled(parts, fractions, names=names, groups=called, whole_groups=whole_groups)


def split_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each split that has one; if ``root`` has no folder ``train``, ``root`` itself is ``train``.

    Raises:
        UserError: if a folder beside ``train`` is not named after a split, a split has two folders, or a split has a
            folder and ``train`` has none.
    """
    folders = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != ".")
    if "train" not in folders:
        stray = [name for name in folders if name.lower() in _SPLITS]
        check(not stray, f"{root} holds {stray}, which have names of splits, but no folder 'train'")
        return {"train": root}
    stray = [name for name in folders if name not in _SPLITS]
    check(
        not stray,
        f"{root} holds {stray} beside 'train', which would not be read: a split's folder is called one of "
        f"{list(_SPLITS)}; rename it or move it away",
    )
    splits = {"train": root / "train"}
    for split, names in HELD_OUT.items():
        there = [root / name for name in names if (root / name).is_dir()]
        check(len(there) <= 1, f"{split} must be one folder, got {[str(one) for one in there]}")
        if there:
            splits[split] = there[0]
    return splits


class _ImageList:
    """Paths of images and their labels."""

    def __init__(self, classes: list[str], samples: Sequence[tuple[str, int]]) -> None:
        self.classes = classes
        self.paths = [path for path, _ in samples]
        self.labels = torch.tensor([label for _, label in samples])

    @classmethod
    def of_training(cls, folder: Path) -> _ImageList:
        """Return the images of the training split, or of all splits; each class must have at least one."""
        classes, samples = _in_folders(folder)
        check(
            bool(classes),
            f"dataset image_folder: {folder} must hold a folder of images per class, got no folder",
        )
        counts = Counter(label for _, label in samples)
        empty = [name for label, name in enumerate(classes) if not counts[label]]
        check(
            not empty,
            f"dataset image_folder: each folder of {folder} is a class and must hold images for training "
            f"({', '.join(ENDINGS)}), but these hold none: {first_few(empty)}. Classes without images are allowed in "
            "val and test alone",
        )
        return cls(classes, samples)

    def held_out(self, folder: Path) -> _ImageList:
        """Return the images of another split with the classes of this one; a class may have no image."""
        classes, samples = _in_folders(folder)
        unknown = sorted(set(classes) - set(self.classes))
        check(
            not unknown,
            f"dataset image_folder: {folder} must have no class that training lacks, got {first_few(unknown)}",
        )
        check(bool(samples), f"dataset image_folder: {folder} must hold images, got none")
        numbers = {name: label for label, name in enumerate(self.classes)}
        return _ImageList(self.classes, [(path, numbers[classes[label]]) for path, label in samples])

    def read(self, size: int) -> tuple[Tensor, Tensor]:
        """Return the images, uint8 ``(n, 3, size, size)``, and their labels."""
        images = torch.empty((len(self.paths), 3, size, size), dtype=torch.uint8)

        def fill(row: int) -> str | None:
            try:
                images[row] = square(self.paths[row], size)
            except UnreadableImageError as error:
                return str(error)
            return None

        with ThreadPoolExecutor() as pool:  # decoding releases Python's lock
            broken = [error for error in pool.map(fill, range(len(self.paths))) if error]
        check(
            not broken,
            f"dataset image_folder: {len(broken)} of {len(self.paths)} images cannot be read: {first_few(broken)}. "
            "Repair them or move them out of the folder",
        )
        return images, self.labels


def _in_folders(folder: Path) -> tuple[list[str], list[tuple[str, int]]]:
    classes = class_folders(folder)
    return classes, [
        (path, label) for label, name in enumerate(classes) for path in images_below(folder / name)
    ]
