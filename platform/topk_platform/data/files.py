"""Datasets of image files that are read as they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.folder import data_folder
from topk_platform.data.images import Images
from topk_platform.data.listing import FileList, from_folders, readable
from topk_platform.data.own import assembled, split_folders
from topk_platform.errors import MissingDataError
from topk_platform.specs.checks import check

__all__ = ["Reading", "check_classes", "image_files"]


@dataclass(frozen=True)
class Reading:
    """How files become the inputs of a split.

    Args:
        size: Height and width of what networks see.
        resize: The shorter side of the image that it is taken from.
        unreadable: ``"fatal"``: an image that cannot be read ends the trial that meets it; ``"skip"``: all images
            are read once before anything starts, and a warning names those that are left out.

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
            part: Its name.
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
) -> Dataset:
    """Return the images of ``folder / class / image``, read as they are needed: as many, and as large, as one likes.

    Splits and classes are those of :func:`topk_platform.data.image_folder`: folders ``train``, ``val`` and
    ``test`` where there are such, fractions of training where not. So iNaturalist 2021 is read, of which ``val``
    has to be called ``test`` to be scored as it is usually, for its own test labels are not public.

    Args:
        folder: In the data folder; an absolute path works too, and makes the arms another's on another machine.
        size: Height and width of what networks see: the middle of the image, or a random place in training with
            ``Augmentation(window=True)``.
        resize: Images are scaled so that their shorter side is this long before that.
        validation: The fraction of each class for validation.
        test: The fraction of each class for test.
        unreadable: ``"fatal"`` or ``"skip"``: what to do about images that cannot be read, see :class:`Reading`.

    Raises:
        MissingDataError: if there is no such folder.
        UserError: if a class has no images, the splits' classes differ, or a folder beside ``train`` is no split's.
    """
    root = data_folder() / folder
    if not root.is_dir():
        raise MissingDataError(
            f"dataset image_files: there is no folder {root}. Put the images there as {folder}/CLASS/IMAGE or "
            f"{folder}/train/CLASS/IMAGE, or name the folder that holds {folder} with --data DIR or TOPK_DATA"
        )
    how = Reading(size, resize, unreadable)
    lists = {
        name: from_folders(root, place.relative_to(root).as_posix())
        for name, place in split_folders(root).items()
    }
    check_classes("image_files", root, lists)
    given = {"validation": validation, "test": test}
    return assembled(
        {name: how.split(files, name) for name, files in lists.items()},
        {name: fraction for name, fraction in given.items() if name not in lists},
    )


def check_classes(dataset: str, root: Path, lists: dict[str, FileList]) -> None:
    """Raise ``ValueError`` unless all lists have the classes of training."""
    wanted = lists["train"].classes
    for name, files in lists.items():
        differing = sorted(set(files.classes) ^ set(wanted))
        check(
            not differing,
            f"dataset {dataset}: the {name} images of {root} must have the classes of training, "
            f"{len(differing)} differ: {differing[:5]}",
        )
