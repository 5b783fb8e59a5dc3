"""Users' own image files, in memory or read when they are needed."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from topk_platform.data.dataset import GROUPS, Dataset, Split
from topk_platform.data.datasets.tensors import assembled
from topk_platform.data.folders import data_folder
from topk_platform.data.grouping import group_numbers
from topk_platform.data.images.decoding import UnreadableImageError, pool, square
from topk_platform.data.images.in_files import Images, scaled
from topk_platform.data.images.listing import FileList, cached
from topk_platform.data.images.own_files import own_files
from topk_platform.specs.checks import check, first_few

__all__ = ["image_files", "image_folder", "of_files", "readable", "splits_of"]


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
    labels: str = "",
    copies: str = "refuse",
) -> Dataset:
    """Return the images of ``folder / class / image``, of any number and size; each is read when it is needed.

    Splits and classes are those of :func:`topk_platform.data.image_folder`. iNaturalist 2021 can be read this way:
    rename its ``val`` to ``test``, because its own test labels are not public and ``val`` is usually scored.

    Args:
        folder: The folder's path in the data folder. An absolute path works too, but it is part of the arms' identity,
            which then differs on another machine.
        size: Height and width of the network's input. The input is the centre crop of the scaled image, or a random
            crop in training with ``Augmentation(window=True)``.
        resize: Images are first scaled so that their shorter side has this many pixels.
        validation: The fraction of each class for validation, if there is no folder for it.
        test: The fraction of each class for test, if there is no folder for it.
        unreadable: ``"fatal"`` or ``"skip"``: what to do about images that cannot be read, see :func:`readable`.
        groups: The source of each image's group, see :func:`topk_platform.data.image_folder`.
        called: The name of the groups, in the plural, such as ``"patients"``.
        whole_groups: Whether every group must be in one split only. If not, groups are used only for intervals.
        labels: The path of a table of labels in ``folder``, see :func:`topk_platform.data.image_folder`.
        copies: ``"refuse"`` or ``"drop"``, see :func:`topk_platform.data.image_folder`. Images are equal if their files
            hold the same bytes.

    Raises:
        MissingDataError, UserError: as for :func:`topk_platform.data.image_folder`.
    """
    listed, named = own_files("image_files", data_folder(folder), labels, groups, keep=True)
    files = readable(listed, resize, unreadable)
    counts = torch.bincount(files.labels[files.parts == 0], minlength=len(files.classes)).tolist()
    empty = [name for name, count in zip(files.classes, counts, strict=True) if not count]
    check(
        not empty,
        f"dataset image_files: each class of {files.root} must have a training image that can be read, got none of "
        f"{first_few(empty)}",
    )
    splits = splits_of(files, size, resize)
    fractions = {"validation": validation, "test": test}
    return of_files(files, splits, fractions, named, called, whole_groups, copies)


def splits_of(files: FileList, size: int, resize: int) -> dict[str, Split]:
    """Return each split of the images of a list, which stay in their files until a batch needs them.

    Args:
        files: The list.
        size: Height and width of the network's input.
        resize: The shorter side of the scaled image from which the input is cropped.
    """
    return {
        name: Split(Images(files, rows, size, resize), files.labels[rows])
        for name, rows in files.rows.items()
    }


def readable(files: FileList, resize: int, unreadable: str) -> FileList:
    """Return the images of a list that are to be read.

    To skip those that cannot be read, every image is read to its end, once, and the result is kept with the list. If
    ``TOPK_CACHE`` is set, the images' pixels are kept in the same pass.

    Args:
        files: The list.
        resize: The shorter side of the scaled images.
        unreadable: ``"fatal"``: an image that cannot be read ends the trial that reads it. ``"skip"``: it is left out,
            and a warning says how many these are and which.

    Raises:
        ValueError: if ``unreadable`` is something else.
    """
    check(unreadable in ("fatal", "skip"), f"unreadable must be 'fatal' or 'skip', got {unreadable!r}")
    if unreadable == "fatal":
        return files

    def good(row: int) -> bool:
        try:
            scaled(files.path(row), resize)
        except UnreadableImageError:
            return False
        return True

    def make() -> FileList:
        return files.take(np.flatnonzero(list(pool().map(good, range(len(files)), chunksize=16))))

    kind = f"readable {hashlib.sha256(files.names.tobytes()).hexdigest()}"
    kept = cached(kind, files.root, files.stamp, make)
    lost = sorted(set(files.names.tolist()) - set(kept.names.tolist()))
    if lost:
        named = first_few([os.fsdecode(name) for name in lost])
        warnings.warn(
            f"{len(lost)} of {len(files)} images of {files.root} cannot be read and are left out: {named}",
            stacklevel=2,
        )
    return kept


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
    pixels = _pixels_of(files, size)
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


def _pixels_of(files: FileList, size: int) -> Tensor:
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
