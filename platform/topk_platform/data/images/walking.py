"""Folders below a folder, through links, but never round in a circle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["folders_below"]


def folders_below(folder: Path, around: tuple[Path, ...] = ()) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder and those in it, each with the names of its files, in the order of their names.

    Hidden folders are left out, and links to a folder that the way to them leads through, or to one around it. Such
    links would lead round in a circle, and two of them to billions of paths. A folder that cannot be read is left out.

    Args:
        folder: The folder.
        around: The real paths of the folders that the way to it leads through.
    """
    around = (*around, Path(os.path.realpath(folder)))
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    yield folder, [entry.name for entry in entries if not entry.is_dir()]
    for entry in entries:
        if entry.is_dir() and entry.name[0] != ".":
            real = os.path.realpath(entry.path)
            if not any(one.is_relative_to(real) for one in around):
                yield from folders_below(Path(entry.path), around)
