"""Lists of image files with their labels, made once and kept on disk."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from topk_platform.data.folders import arrays_in, cache_folder, write_whole
from topk_platform.data.images.decoding import pool
from topk_platform.errors import MissingDataError, UserError
from topk_platform.specs.checks import check, first_few

__all__ = [
    "SPLITS",
    "FileList",
    "Sample",
    "cached",
    "class_names",
    "file_list",
    "from_files",
    "parse_lines",
    "size_of",
]

SPLITS = ("train", "validation", "test")

Sample = tuple[str, int, int, int]
"""The path of an image relative to the dataset's folder, its size in bytes, its label and the number of its split."""


@dataclass(frozen=True, eq=False)
class FileList:
    """Image files under a folder.

    Args:
        root: The dataset's folder.
        names: The paths relative to ``root``, with slashes, as bytes ``(n,)``.
        sizes: The sizes in bytes, int64 ``(n,)``; -1 for a link that leads nowhere.
        labels: The labels, int64 ``(n,)``.
        parts: The number of each image's split in :data:`SPLITS`, int64 ``(n,)``.
        classes: The classes' names, in the order of the labels.
        stamp: A text that changes whenever the files that list the images have changed.
        note: A sentence on what was left out; empty if nothing was.
        inner: The paths of the folders that hold the images relative to ``root``, each with the date of its last change
            in nanoseconds. The list is made again when one has changed.
    """

    root: Path
    names: NDArray[np.bytes_]
    sizes: NDArray[np.int64]
    labels: Tensor
    parts: NDArray[np.int64]
    classes: tuple[str, ...]
    note: str = ""
    stamp: str = ""
    inner: tuple[tuple[bytes, int], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def rows(self) -> dict[str, Tensor]:
        """The rows of each split that has images, int64."""
        held = {split: np.flatnonzero(self.parts == number) for number, split in enumerate(SPLITS)}
        return {split: torch.from_numpy(rows) for split, rows in held.items() if len(rows)}

    def path(self, row: int) -> Path:
        """Return the path of the file of a row."""
        return self.root / os.fsdecode(self.names[row])

    def paths(self, rows: Tensor) -> list[str]:
        """Return the paths of the files of some rows relative to ``root``, with slashes."""
        return list(map(os.fsdecode, self.names[rows.numpy()].tolist()))

    def take(self, rows: NDArray[np.int64]) -> FileList:
        """Return the list of some of its images."""
        names, sizes = self.names[rows], self.sizes[rows]
        return replace(self, names=names, sizes=sizes, labels=self.labels[rows], parts=self.parts[rows])


def from_files(
    dataset: str,
    root: Path,
    files: Mapping[str, str],
    parse: Callable[[Path, str], Sequence[tuple[str, str]]],
    where: str,
) -> FileList:
    """Return the images that files list, of public datasets whose splits all have the same classes.

    If the classes' names are the numbers from 0 on without gaps, they are the labels. Otherwise classes are numbered in
    the order of their names.

    Args:
        dataset: The dataset's name, for errors.
        root: The dataset's folder, which holds the files too.
        files: The name of each split's file, training first. The list is kept until one of them changes.
        parse: Returns the images that the file at this path lists for a split: their paths relative to ``root`` and
            their classes.
        where: The remedy for missing images, for the error message.

    Raises:
        MissingDataError: if an image does not exist.
        UserError: if a file lists no images of its split, or the splits have different classes.
    """
    status = {name: (root / name).stat() for name in files.values()}
    lines = [f"{name} {file.st_size} {file.st_mtime_ns}" for name, file in status.items()]
    stamp = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def make() -> FileList:
        classes: list[str] = []
        samples: list[Sample] = []
        for split, name in files.items():
            pairs = parse(root / name, split)
            check(bool(pairs), f"{root / name} lists no images of {split}")
            names = class_names({of for _, of in pairs})
            classes = classes or names
            differing = sorted(set(classes) ^ set(names))
            check(
                not differing,
                f"dataset {dataset}: the {split} images of {root} must have the classes of training, "
                f"{len(differing)} differ: {differing[:5]}",
            )
            sizes = list(pool().map(size_of, [root / path for path, _ in pairs], chunksize=256))
            missing = [path for (path, _), size in zip(pairs, sizes, strict=True) if size < 0]
            if missing:
                raise MissingDataError(
                    f"{root / name} lists images that {root} lacks: {first_few(missing)}. {where}"
                )
            number, part = {of: label for label, of in enumerate(classes)}, SPLITS.index(split)
            samples += [(path, size, number[of], part) for (path, of), size in zip(pairs, sizes, strict=True)]
        return file_list(root, samples, classes, stamp=stamp)

    return cached(f"files {dataset}", root, stamp, make)


def class_names(names: set[str]) -> list[str]:
    """Return the names of classes in the order of their numbers: numbers from 0 on without gaps as such."""
    if all(name.isdigit() for name in names) and len(names) == 1 + max(map(int, names), default=-1):
        return sorted(names, key=int)
    return sorted(names)


def parse_lines(file: Path, _split: str) -> list[tuple[str, str]]:
    """Return the images of a file with a path and a label in each line.

    Raises:
        UserError: if a line is not a path and a whole number.
    """
    pairs = []
    for line in file.read_text().splitlines():
        name, _, label = line.strip().rpartition(" ")
        if not name or not label.isdigit():
            raise UserError(f"{file}: a line must be the path of an image and its label, got {line!r}")
        pairs.append((name, label))
    return pairs


def size_of(path: str | Path) -> int:
    """Return a file's size; -1 if there is none, as where a link leads nowhere or in a circle."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def file_list(
    root: Path,
    samples: Sequence[Sample],
    classes: Sequence[str],
    note: str = "",
    stamp: str = "",
    inner: tuple[tuple[bytes, int], ...] = (),
) -> FileList:
    """Return the list of samples, see :class:`FileList`."""
    names, sizes, labels, parts = zip(*samples, strict=True) if samples else ((), (), (), ())
    return FileList(
        root=root,
        names=np.array([os.fsencode(name) for name in names], dtype=np.bytes_),
        sizes=np.array(sizes, dtype=np.int64),
        labels=torch.tensor(labels, dtype=torch.int64),
        parts=np.array(parts, dtype=np.int64),
        classes=tuple(classes),
        note=note,
        stamp=stamp,
        inner=inner,
    )


def cached(kind: str, root: Path, stamp: str, make: Callable[[], FileList]) -> FileList:
    """Return a list from :func:`cache_folder`; if it is not there or no longer true, make and keep it."""
    name = hashlib.sha256(f"{kind}\0{root}".encode("utf-8", "surrogateescape")).hexdigest()[:20]
    file = cache_folder() / "lists" / f"{name}.npz"
    known = _read(file, root, stamp)
    if known is not None:
        return known
    made = make()
    try:
        _write(file, made)
    except OSError as error:  # a shared folder that is read-only for this user
        warnings.warn(
            f"every process makes the list of files of {root} again, because it cannot be kept: {error}. "
            "Name a folder that can be written to with TOPK_CACHE",
            stacklevel=2,
        )
    return made


def _is_unchanged(root: Path, folder: bytes, date: int) -> bool:
    try:
        return (root / os.fsdecode(folder)).stat().st_mtime_ns == date
    except OSError:
        return False


def _read(file: Path, root: Path, stamp: str) -> FileList | None:
    """Return a kept list; None if it is missing, incomplete or no longer true, and must be made again."""
    try:
        data = arrays_in(file)
        inner = tuple(zip(data["inner"].tolist(), data["dates"].tolist(), strict=True))
        if str(data["stamp"]) != stamp or not all(_is_unchanged(root, *folder) for folder in inner):
            return None
        return FileList(
            root=root,
            names=data["names"],
            sizes=data["sizes"],
            labels=torch.from_numpy(data["labels"]),
            parts=data["parts"],
            classes=tuple(map(str, data["classes"])),
            note=str(data["note"]),
            stamp=stamp,
            inner=inner,
        )
    except (OSError, KeyError):
        return None


def _write(file: Path, files: FileList) -> None:
    arrays: dict[str, Any] = {
        "names": files.names,
        "sizes": files.sizes,
        "labels": files.labels.numpy(),
        "parts": files.parts,
        "classes": np.array(files.classes),
        "note": np.array(files.note),
        "stamp": np.array(files.stamp),
        "inner": np.array([name for name, _ in files.inner], dtype=np.bytes_),
        "dates": np.array([date for _, date in files.inner], dtype=np.int64),
    }
    write_whole(file, partial(np.savez, **arrays))
