"""Datasets of image files that are read when they are needed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from topk_platform.data.dataset import GROUPS, Dataset, Split
from topk_platform.data.datasets.own import of_files
from topk_platform.data.folder import data_folder
from topk_platform.data.images.in_files import Images
from topk_platform.data.images.listing import FileList, readable
from topk_platform.data.images.own_files import own_files
from topk_platform.specs.checks import check, first_few

__all__ = ["Reading", "image_files"]


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

    def splits(self, files: FileList) -> dict[str, Split]:
        """Return each split of the images of a list that can be read."""
        return {
            name: Split(Images(files, rows, self.size, self.resize), files.labels[rows])
            for name, rows in files.rows.items()
        }

    def files(self, files: FileList) -> FileList:
        """Return the images of a list that are to be read."""
        return readable(files, self.resize) if self.unreadable == "skip" else files


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
        unreadable: ``"fatal"`` or ``"skip"``: what to do about images that cannot be read, see :class:`Reading`.
        groups: The source of each image's group, see :func:`topk_platform.data.image_folder`.
        called: The name of the groups, in the plural, such as ``"patients"``.
        whole_groups: Whether every group must be in one split only. If not, groups are used only for intervals.
        labels: The path of a table of labels in ``folder``, see :func:`topk_platform.data.image_folder`.
        copies: ``"refuse"`` or ``"drop"``, see :func:`topk_platform.data.image_folder`. Images are equal if their files
            hold the same bytes.

    Raises:
        MissingDataError, UserError: as for :func:`topk_platform.data.image_folder`.
    """
    how = Reading(size, resize, unreadable)
    listed, named = own_files("image_files", data_folder(folder), labels, groups, keep=True)
    files = how.files(listed)
    splits = how.splits(files)
    _check_each_class(files)
    fractions = {"validation": validation, "test": test}
    return of_files(files, splits, fractions, named, called, whole_groups, copies)


def _check_each_class(files: FileList) -> None:
    """Raise ``UserError`` if a class has no training image; those that cannot be read may have been left out."""
    counts = torch.bincount(files.labels[files.parts == 0], minlength=len(files.classes)).tolist()
    empty = [name for name, count in zip(files.classes, counts, strict=True) if not count]
    check(
        not empty,
        f"dataset image_files: each class of {files.root} must have a training image that can be read, got none of "
        f"{first_few(empty)}",
    )
