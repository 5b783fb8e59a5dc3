"""Folders: that of the data, that of what is derived from them, and what users' folders and tables of images hold."""

from __future__ import annotations

import csv
import io
import os
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np

from topk_platform.errors import MissingDataError, UserError, reason
from topk_platform.specs.checks import absolute, check_not_blank

__all__ = [
    "ENDINGS",
    "arrays_in",
    "cache_folder",
    "check_on_disk",
    "data_at",
    "data_folder",
    "folders_below",
    "images_below",
    "is_folder",
    "is_image",
    "is_left_out",
    "not_read",
    "pixel_folder",
    "rows_of_table",
    "use_data_folder",
    "write_whole",
]

_VARIABLE = "TOPK_DATA"
_DEFAULT = "data"
_CACHE_VARIABLE = "TOPK_CACHE"
_CACHE_DEFAULT = ".topk"


def data_folder(inside: str = "") -> Path:
    """Return the absolute path of the folder of datasets: the environment's ``TOPK_DATA``, or else ``data``.

    Args:
        inside: A path in that folder, which is returned then; ``~`` is the home folder.

    Functions of datasets look for their files here. A path among their options would be part of the arms' identity.
    The fingerprint identifies the data instead, wherever the files are.

    Example:
        >>> with data_at("/mnt/datasets"):
        ...     print(data_folder() / "birds")
        /mnt/datasets/birds
    """
    return absolute(os.environ.get(_VARIABLE) or _DEFAULT) / os.path.expanduser(inside)


def use_data_folder(folder: str | Path) -> None:
    """Make ``folder`` the folder of datasets of this process and its children.

    Raises:
        UserError: if ``folder`` is blank.
    """
    check_not_blank("data", folder)
    os.environ[_VARIABLE] = str(absolute(folder))


@contextmanager
def data_at(folder: str | Path | None) -> Iterator[None]:
    """Make ``folder`` the folder of datasets within the block; None changes nothing."""
    if folder is None:
        yield
        return
    before = os.environ.get(_VARIABLE)
    use_data_folder(folder)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before


def cache_folder() -> Path:
    """Return the folder for data derived from datasets: ``TOPK_CACHE``, or ``.topk`` in the data folder.

    It may be deleted at any time. Features and lists of files are always kept there; a list takes a hundred bytes per
    image.
    """
    named = os.environ.get(_CACHE_VARIABLE)
    return absolute(named) if named else data_folder() / _CACHE_DEFAULT


def pixel_folder() -> Path | None:
    """Return the folder of images that were decoded and scaled, or None unless ``TOPK_CACHE`` is set.

    They are large, about 260 kB each for a shorter side of 256, so they are kept only if the user asks for it.
    """
    return cache_folder() / "pixels" if os.environ.get(_CACHE_VARIABLE) else None


def write_whole(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file that other processes see whole or not at all, and its folder.

    Args:
        file: The file.
        write: A function that writes the content.

    Raises:
        OSError: if the file cannot be written.
    """
    part = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as content:
            write(content)
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def arrays_in(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an ``.npz`` file by name; nothing in it is unpickled.

    Raises:
        OSError: if there is no such file, or it holds something else or only a part.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, TypeError, LookupError, EOFError, BadZipFile, zlib.error) as error:
        raise OSError(str(error)) from error


def check_on_disk(dataset: str, root: Path, names: Iterable[str], remedy: str) -> None:
    """Raise ``MissingDataError``, with a remedy, unless a dataset's folder holds files or folders of these names."""
    lacking = [name for name in names if not (root / name).exists()]
    if lacking:
        raise MissingDataError(
            f"dataset {dataset} is not on disk: {root} lacks {', '.join(lacking)}. {remedy}"
        )


ENDINGS = (
    ".jpg",
    ".jpeg",
    ".jfif",
    ".png",
    ".gif",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
    ".avif",
    ".jp2",
)
"""The endings of image files, in lower case."""

# What file servers, macOS and Windows leave in folders, mostly with small copies of the images.
_OF_SYSTEMS = ("@eadir", "#recycle", "lost+found", "$recycle.bin", "__macosx", "system volume information")
_HEIC = "save photos of iPhones (.heic) as .jpg"
_REMEDIES = {".heic": _HEIC, ".heif": _HEIC, ".svg": "save drawings (.svg) as .png"}


def is_left_out(name: str) -> bool:
    """Return whether a file or folder of this name is none of the user's: hidden, or left there by a system.

    Example:
        >>> [is_left_out(name) for name in ("._1.jpg", "@eaDir", "owl")]
        [True, True, False]
    """
    return name[0] == "." or name.lower() in _OF_SYSTEMS


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or leads to one; a link that leads to itself is none, and no error."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def is_image(name: str) -> bool:
    """Return whether a file of this name is an image. Hidden files are not images, such as macOS's ``._1.jpg``.

    Example:
        >>> [is_image(name) for name in ("1.JPG", "._1.jpg", "1.txt")]
        [True, False, False]
    """
    return name.lower().endswith(ENDINGS) and name[0] != "."


def folders_below(folder: Path, around: tuple[Path, ...] = ()) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder and those in it, each with the names of its files, in the order of their names.

    Folders are left out as :func:`is_left_out` says, and so are links to a folder that the way to them leads through,
    or to one around it. Such links would lead round in a circle, and two of them to billions of paths. A folder that
    cannot be read is left out.

    Args:
        folder: The folder.
        around: The real paths of the folders that the way to it leads through.
    """
    around = (*around, Path(os.path.realpath(folder)))
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    yield folder, [entry.name for entry in entries if not is_folder(entry)]
    for entry in entries:
        if is_folder(entry) and not is_left_out(entry.name):
            real = os.path.realpath(entry.path)
            if not any(outer.is_relative_to(real) for outer in around):
                yield from folders_below(Path(entry.path), around)


def images_below(folder: Path) -> Iterator[str]:
    """Yield the images in a folder and in its folders, in torchvision's order."""
    for inner, names in sorted((str(inner), names) for inner, names in folders_below(folder)):
        yield from (os.path.join(inner, name) for name in sorted(names) if is_image(name))


def not_read(folder: Path, read: Container[str]) -> str:
    """Return a sentence that counts the files that are not read, by their ending; empty if there are none.

    Args:
        folder: The folder.
        read: The paths of the files that are read.
    """
    others: Counter[str] = Counter()
    for inner, names in folders_below(folder):
        others.update(
            Path(name).suffix.lower() or "without an ending"
            for name in names
            if name[0] != "." and str(inner / name) not in read
        )
        for entry in os.scandir(inner):
            if is_folder(entry) and is_left_out(entry.name):
                images = sum(1 for _ in images_below(Path(entry.path)))
                others.update({f"in {entry.name}, which a system left there": images} if images else {})
    kinds = ", ".join(f"{count} {ending}" for ending, count in sorted(others.items()))
    remedies = "; ".join(dict.fromkeys(remedy for ending, remedy in _REMEDIES.items() if others[ending]))
    return f"files not read: {kinds}{': ' if remedies else ''}{remedies}" if kinds else ""


def rows_of_table(file: Path, argument: str) -> list[list[str]]:
    """Return the cells of a text file's lines; commas, semicolons, tabs or bars separate them.

    Args:
        file: The file, in UTF-8 with or without a byte-order mark.
        argument: The name of the argument that names the file, for errors.

    Raises:
        MissingDataError: if there is no such file.
        UserError: if it is in another encoding or no table.
    """
    if not file.is_file():
        raise MissingDataError(f"{argument}: there is no {file}")
    try:
        text = file.read_text("utf-8-sig")
        ways = [
            list(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=each))) for each in ",;\t|"
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{argument}: {file} cannot be read: {reason(error)}; save it as CSV in UTF-8"
        ) from error
    # The separator of a table gives all its lines equally many cells, and more than one.
    return max(
        ways,
        key=lambda rows: (len(set(map(len, rows))) == 1 < len((rows or [[]])[0]), len((rows or [[]])[0])),
    )
