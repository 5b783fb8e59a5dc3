"""Datasets of image files that are read when they are needed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from topk_platform.data.dataset import GROUPS, Dataset, Split
from topk_platform.data.datasets.own import assembled, split_folders
from topk_platform.data.folder import data_folder
from topk_platform.data.images.in_files import Images
from topk_platform.data.images.listing import FileList, from_folders, held_out_folders, readable
from topk_platform.data.splits.grouping import grouped_files
from topk_platform.errors import MissingDataError
from topk_platform.specs.checks import check, first_few

__all__ = ["Reading", "check_classes", "image_files"]


@dataclass(frozen=True)
class Reading:
    """Options that say how image files become the inputs of a split.

    Args:
        size: Height and width of the network's input.
        resize: The shorter side of the scaled image from which the input is cropped.
        unreadable: ``"fatal"``: an image that cannot be read ends the trial that reads it. ``"skip"``: all images are
            read once before anything starts, and a warning names those that are left out.

    Raises:
        ValueError: if ``unreadable`` is something else.
    """

    size: int
    resize: int
    unreadable: str

    def __post_init__(self) -> None:
        check(
            self.unreadable in ("fatal", "skip"),
            f"unreadable must be 'fatal' or 'skip', got {self.unreadable!r}",
        )

    def split(self, files: FileList, part: str) -> Split:
        """Return the split of all files of a list.

        Args:
            files: The list.
            part: The split's name.
        """
        if self.unreadable == "skip":
            files = readable(files, part, self.resize)
        return Split(Images(files, torch.arange(len(files)), self.size, self.resize), files.labels)


def image_files(
    folder: str,
    size: int = 224,
    resize: int = 256,
    validation: float = 0.1,
    test: float = 0.1,
    unreadable: str = "fatal",
    groups: str = "",
    called: str = GROUPS,
    whole_groups: bool = True,
) -> Dataset:
    """Return the images of ``folder / class / image``, of any number and size; each is read when it is needed.

    Splits and classes are those of :func:`topk_platform.data.image_folder`: folders ``train``, ``val`` and ``test`` if
    they exist, otherwise fractions of training. But images must not be in folders of a class's folder. iNaturalist 2021
    can be read this way: rename its ``val`` to ``test``, because its own test labels are not public and ``val`` is
    usually scored.

    Args:
        folder: The folder's path in the data folder. An absolute path works too, but it is part of the arms' identity,
            which then differs on another machine.
        size: Height and width of the network's input. The input is the centre crop of the scaled image, or a random
            crop in training with ``Augmentation(window=True)``.
        resize: Images are first scaled so that their shorter side has this many pixels.
        validation: The fraction of each class for validation, if there is no folder for it.
        test: The fraction of each class for test, if there is no folder for it.
        unreadable: ``"fatal"`` or ``"skip"``: what to do about images that cannot be read, see :class:`Reading`.
        groups: The source of each image's group, see :func:`topk_platform.data.image_folder`.
        called: The name of the groups, in the plural, such as ``"patients"``.
        whole_groups: Whether every group must be in one split only. If not, groups are used only for intervals.

    Raises:
        MissingDataError: if there is no such folder or no such CSV file of groups.
        UserError: if a class has no training images or has images in folders of its folder, a folder beside ``train``
            is not named after a split, the group of an image is not known, a class has too few images or groups to be
            split, or two splits share a group that must be whole.
    """
    root = data_folder() / folder
    if not root.is_dir():
        raise MissingDataError(
            f"dataset image_files: there is no folder {root}. Put the images there as {folder}/CLASS/IMAGE or "
            f"{folder}/train/CLASS/IMAGE, or name the folder that holds {folder} with --data DIR or TOPK_DATA"
        )
    how = Reading(size, resize, unreadable)
    parts = {name: folder.relative_to(root).as_posix() for name, folder in split_folders(root).items()}
    training = from_folders(root, parts["train"])
    others = {name: part for name, part in parts.items() if name != "train"}
    lists = {"train": training} | {n: held_out_folders(root, p, training.classes) for n, p in others.items()}
    splits = {name: how.split(files, name) for name, files in lists.items()}
    _check_each_class(root, training.classes, splits["train"])
    if groups:
        splits = grouped_files(splits, _paths(splits), parts, root, groups)
    given = {"validation": validation, "test": test}
    fractions = {name: fraction for name, fraction in given.items() if name not in lists}
    return assembled(splits, fractions, groups=called, whole_groups=whole_groups)


def _check_each_class(root: Path, classes: Sequence[str], train: Split) -> None:
    """Raise ``UserError`` if a class has no training image; those that cannot be read may have been left out."""
    counts = torch.bincount(train.labels, minlength=len(classes)).tolist()
    empty = [name for name, count in zip(classes, counts, strict=True) if not count]
    check(
        not empty,
        f"dataset image_files: each class of {root} must have a training image that can be read, got none of "
        f"{first_few(empty)}",
    )


def _paths(splits: Mapping[str, Split]) -> dict[str, list[str]]:
    inputs = {name: split.inputs for name, split in splits.items()}
    return {name: list(map(os.fsdecode, i.names)) for name, i in inputs.items() if isinstance(i, Images)}


def check_classes(dataset: str, root: Path, lists: dict[str, FileList]) -> None:
    """Raise ``ValueError`` unless all lists have the classes of training."""
    expected = lists["train"].classes
    for name, files in lists.items():
        differing = sorted(set(files.classes) ^ set(expected))
        check(
            not differing,
            f"dataset {dataset}: the {name} images of {root} must have the classes of training, "
            f"{len(differing)} differ: {differing[:5]}",
        )
