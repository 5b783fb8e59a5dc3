"""Folders below a folder, through links, but never round in a circle; and the files in them that nobody reads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path

__all__ = ["ENDINGS", "folders_below", "images_below", "is_folder", "is_image", "is_left_out", "not_read"]

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
