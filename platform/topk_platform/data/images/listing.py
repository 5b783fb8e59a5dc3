"""Lists of image files with their labels, made once and kept on disk."""

from __future__ import annotations

import hashlib
import os
import uuid
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from topk_platform.data.folder import cache_folder
from topk_platform.data.images.appearance import without_range
from topk_platform.data.images.decoding import UnreadableImageError, pool, scaled
from topk_platform.data.images.walking import folders_below
from topk_platform.errors import MissingDataError, UserError
from topk_platform.specs.checks import check, first_few

__all__ = [
    "ENDINGS",
    "FileList",
    "class_folders",
    "from_file",
    "from_folders",
    "held_out_folders",
    "images_below",
    "is_image",
    "parse_lines",
    "readable",
]

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The endings of image files, in lower case."""

_UNREADABLE = (
    OSError,
    SyntaxError,
    ValueError,
)  # as Pillow's readers raise them; reading the pixels reports them


@dataclass(frozen=True, eq=False)
class FileList:
    """Image files under a folder.

    Args:
        root: The dataset's folder.
        names: The paths relative to ``root``, with slashes, as bytes ``(n,)``.
        sizes: The sizes in bytes, int64 ``(n,)``.
        labels: The labels, int64 ``(n,)``.
        classes: The classes' names, in the order of the labels.
        stamp: A text that changes whenever files were added, removed or renamed.
        inner: The paths of the folders in the classes' folders relative to ``root``, each with the date of its last
            change in nanoseconds. They hold no images.
    """

    root: Path
    names: NDArray[np.bytes_]
    sizes: NDArray[np.int64]
    labels: Tensor
    classes: tuple[str, ...]
    stamp: str
    inner: tuple[tuple[bytes, int], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def path(self, row: int) -> Path:
        """Return the path of the file of a row."""
        return self.root / os.fsdecode(self.names[row])


def from_folders(root: Path, part: str) -> FileList:
    """Return the images of ``root / part / class / image``; classes are numbered in the order of their names.

    The list is kept in :func:`cache_folder` and made again when a folder has changed. A changed image of the same name
    is not noticed; in that case delete the list.

    Args:
        root: The dataset's folder.
        part: The folder in ``root``; ``"."`` for ``root`` itself.

    Raises:
        UserError: if there is no class, a class has no images, or a class's folder has images in folders of its own.
    """
    top = root / part
    classes = class_folders(top)
    stamp = _stamp(f"{name} {(top / name).stat().st_mtime_ns}" for name in classes)

    def make() -> FileList:
        folders = [top / name for name in classes]
        inner = _inner(root, folders)
        images_of_class = list(pool().map(_images, folders))
        empty = [name for name, images in zip(classes, images_of_class, strict=True) if not images]
        if empty or not classes:
            found_in = f"none in {first_few(empty)}" if empty else "no folder"
            raise UserError(f"{top} must hold folders of images, one per class, got {found_in}")
        prefix = "" if part == "." else f"{part}/"
        samples = [
            (f"{prefix}{name}/{image}", size, label)
            for label, (name, images) in enumerate(zip(classes, images_of_class, strict=True))
            for image, size in images
        ]
        return _file_list(root, samples, classes, stamp, inner)

    return _cached(f"folders {part}", root, stamp, make)


def held_out_folders(root: Path, part: str, classes: Sequence[str]) -> FileList:
    """Return the images of ``root / part / class / image`` with given classes; some classes may have no image.

    The list is kept as for :func:`from_folders`.

    Args:
        root: The dataset's folder.
        part: The folder in ``root``.
        classes: The classes' names, in the order of the labels.

    Raises:
        UserError: if there is a folder of another class, no image at all, or a class's folder has images in folders of
            its own.
    """
    top = root / part
    folders = class_folders(top)
    unknown = sorted(set(folders) - set(classes))
    if unknown:
        raise UserError(f"{top} must have no class that training lacks, got {first_few(unknown)}")
    stamp = _stamp([*(f"{name} {(top / name).stat().st_mtime_ns}" for name in folders), *classes])

    def make() -> FileList:
        numbers = {name: label for label, name in enumerate(classes)}
        inner = _inner(root, [top / name for name in folders])
        images_of_class = list(pool().map(_images, [top / name for name in folders]))
        samples = [
            (f"{part}/{name}/{image}", size, numbers[name])
            for name, images in zip(folders, images_of_class, strict=True)
            for image, size in images
        ]
        if not samples:
            raise UserError(f"{top} must hold images, got none")
        return _file_list(root, samples, list(classes), stamp, inner)

    return _cached(f"held out {part}", root, stamp, make)


def class_folders(folder: Path) -> list[str]:
    """Return the names of a folder's classes in order. A hidden folder is no class, such as ``.ipynb_checkpoints``."""
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")


def is_image(name: str) -> bool:
    """Return whether a file of this name is an image. Hidden files are not images, such as macOS's ``._1.jpg``.

    Example:
        >>> [is_image(name) for name in ("1.JPG", "._1.jpg", "1.txt")]
        [True, False, False]
    """
    return name.lower().endswith(ENDINGS) and name[0] != "."


def images_below(folder: Path) -> Iterator[str]:
    """Yield the images of a class, also those in folders of its folder, in torchvision's order."""
    for inner, names in sorted((str(inner), names) for inner, names in folders_below(folder)):
        yield from (os.path.join(inner, name) for name in sorted(names) if is_image(name))


def _inner(root: Path, folders: Iterable[Path]) -> tuple[tuple[bytes, int], ...]:
    """Return the folders in classes' folders, each with its date: images may be added to them later."""
    inner = (below for folder in folders for below, _ in folders_below(folder) if below != folder)
    return tuple((os.fsencode(path.relative_to(root)), path.stat().st_mtime_ns) for path in inner)


def _is_unchanged(root: Path, folder: bytes, date: int) -> bool:
    try:
        return (root / os.fsdecode(folder)).stat().st_mtime_ns == date
    except OSError:
        return False


def _images(folder: Path) -> list[tuple[str, int]]:
    entries = list(os.scandir(folder))
    _check_ranges([entry.path for entry in entries if is_image(entry.name)])
    folders = [entry for entry in entries if entry.is_dir() and entry.name[0] != "."]
    nested = sorted(entry.name for entry in folders if next(images_below(Path(entry.path)), None))
    check(
        not nested,
        f"{folder} must hold its images itself, got images in its folders {first_few(nested)}: move them up, or take "
        "image_folder",
    )
    return sorted((e.name, _size(Path(e.path))) for e in entries if is_image(e.name) and not e.is_dir())


def _check_ranges(paths: Iterable[str]) -> None:
    """Raise ``UserError`` if a TIFF has pixels without a range; no other format of ours can have them."""
    from PIL import Image  # noqa: PLC0415 - comes with torchvision

    for path in paths:
        if path.lower().endswith((".tif", ".tiff")):
            fault = ""
            with suppress(*_UNREADABLE, Image.DecompressionBombError), Image.open(path) as image:
                fault = without_range(image)
            check(not fault, f"image {path} cannot be read: {fault}")


def from_file(
    root: Path,
    file: str,
    part: str,
    parse: Callable[[Path], Sequence[tuple[str, str]]],
    where: str,
) -> FileList:
    """Return the images that a file lists.

    If the classes' names are the numbers from 0 on without gaps, they are the labels. Otherwise classes are numbered in
    the order of their names.

    Args:
        root: The dataset's folder, which holds the file too.
        file: The file's name. The list is kept until the file changes.
        part: The name under which the list is kept. A file that lists several splits has a list for each.
        parse: Returns the images that the file at this path lists: their paths relative to ``root`` and their classes.
        where: The remedy for missing images, for the error message.

    Raises:
        MissingDataError: if an image does not exist.
        UserError: if the file lists no images.
    """
    status = (root / file).stat()
    stamp = _stamp([f"{status.st_size} {status.st_mtime_ns}"])

    def make() -> FileList:
        pairs = parse(root / file)
        if not pairs:
            raise UserError(f"{root / file} lists no images of {part}")
        sizes = list(pool().map(_size, [root / name for name, _ in pairs], chunksize=256))
        missing = [name for (name, _), size in zip(pairs, sizes, strict=True) if size < 0]
        if missing:
            raise MissingDataError(
                f"{root / file} lists images that {root} lacks: {first_few(missing)}. {where}"
            )
        classes = _classes({name for _, name in pairs})
        labels = {name: label for label, name in enumerate(classes)}
        samples = [(name, size, labels[label]) for (name, label), size in zip(pairs, sizes, strict=True)]
        return _file_list(root, samples, classes, stamp)

    return _cached(f"file {file} {part}", root, stamp, make)


def _classes(names: set[str]) -> list[str]:
    if all(name.isdigit() for name in names) and len(names) == 1 + max(int(name) for name in names):
        return sorted(names, key=int)
    return sorted(names)


def parse_lines(file: Path) -> list[tuple[str, str]]:
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


def _size(path: Path) -> int:
    """Return a file's size; -1 if there is none, as where a link leads nowhere."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def readable(files: FileList, part: str, resize: int) -> FileList:
    """Return the list without the images that cannot be read; a warning says how many and which.

    Every image is read to its end, once, and the result is kept with the list. If ``TOPK_CACHE`` is set, the images'
    pixels are kept in the same pass.

    Args:
        files: The list.
        part: The list's name, under which the result is kept.
        resize: The shorter side of the scaled images.
    """

    def good(row: int) -> bool:
        try:
            scaled(files.path(row), resize)
        except UnreadableImageError:
            return False
        return True

    def make() -> FileList:
        rows = np.flatnonzero(list(pool().map(good, range(len(files)), chunksize=16)))
        return FileList(
            files.root, files.names[rows], files.sizes[rows], files.labels[rows], files.classes, files.stamp
        )

    kept = _cached(f"readable {part}", files.root, files.stamp, make)
    lost = sorted(set(files.names.tolist()) - set(kept.names.tolist()))
    if lost:
        named = first_few([os.fsdecode(name) for name in lost])
        warnings.warn(
            f"{len(lost)} of {len(files)} images of {files.root} cannot be read and are left out: {named}",
            stacklevel=2,
        )
    return kept


def _stamp(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _file_list(
    root: Path,
    samples: Sequence[tuple[str, int, int]],
    classes: Sequence[str],
    stamp: str,
    inner: tuple[tuple[bytes, int], ...] = (),
) -> FileList:
    return FileList(
        root=root,
        names=np.array([os.fsencode(name) for name, _, _ in samples], dtype=np.bytes_),
        sizes=np.array([size for _, size, _ in samples], dtype=np.int64),
        labels=torch.tensor([label for _, _, label in samples], dtype=torch.int64),
        classes=tuple(classes),
        stamp=stamp,
        inner=inner,
    )


def _cached(kind: str, root: Path, stamp: str, make: Callable[[], FileList]) -> FileList:
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


def _read(file: Path, root: Path, stamp: str) -> FileList | None:
    try:
        with np.load(file, allow_pickle=False) as data:
            if str(data["stamp"]) != stamp:
                return None
            inner = tuple(zip(data["inner"].tolist(), data["dates"].tolist(), strict=True))
            if not all(_is_unchanged(root, *folder) for folder in inner):
                return None
            classes = tuple(str(name) for name in data["classes"])
            labels = torch.from_numpy(data["labels"])
            return FileList(root, data["names"], data["sizes"], labels, classes, stamp, inner)
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,  # an empty file, which a machine that loses its power may leave
        zipfile.BadZipFile,
    ):  # the list is missing or incomplete and must be made again
        return None


def _write(file: Path, files: FileList) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.stem}.{uuid.uuid4().hex}.npz")
    arrays: dict[str, Any] = {
        "names": files.names,
        "sizes": files.sizes,
        "labels": files.labels.numpy(),
        "classes": np.array(files.classes),
        "stamp": np.array(files.stamp),
        "inner": np.array([name for name, _ in files.inner], dtype=np.bytes_),
        "dates": np.array([date for _, date in files.inner], dtype=np.int64),
    }
    try:
        np.savez(part, **arrays)
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise
