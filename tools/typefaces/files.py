"""What is written: the pictures packed, a table of the families, and a sheet to look at."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from typefaces.faces import Face
from typefaces.pictures import Pictures

__all__ = ["COLUMNS", "read_table", "write_pictures", "write_sheet", "write_table"]

COLUMNS = (
    "split",
    "family",
    "style",
    "designer",
    "foundry",
    "licence",
    "package",
    "file",
    "number",
    "sha256",
)
_SPLITS = ("train", "validation", "test")
_GREY = 17  # of a level of ink, of which there are 16


def write_pictures(
    path: Path, pictures: Pictures, splits: Sequence[str], characters: str, smallest: bool = False
) -> None:
    """Write a compressed ``.npz`` that ``numpy.load`` reads without pickle, the same bytes for the same pictures.

    It holds ``images``, uint8 ``(families, characters, size, size / 2)``, two pixels a byte, the left one in the high
    bits; ``split`` ``(families,)``, 0 to 2 for train, validation and test; and ``characters``.

    Args:
        path: Where to.
        pictures: ``(families, characters, size, size)`` of levels 0 to 15; the size even.
        splits: Each family's.
        characters: The classes.
        smallest: Compress by LZMA: smaller by a fifth, and slower to read.
    """
    numbers = np.array([_SPLITS.index(split) for split in splits], np.uint8)
    packed = pictures[..., 0::2] << 4 | pictures[..., 1::2]
    names = np.array(list(characters))
    if smallest:
        _save_by_lzma(path, {"images": packed, "split": numbers, "characters": names})
    else:
        np.savez_compressed(path, images=packed, split=numbers, characters=names)


def _save_by_lzma(path: Path, content: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in content.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # its date is the first that a ZIP can have
            member.compress_type = zipfile.ZIP_LZMA
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def write_table(path: Path, faces: Sequence[Face], splits: Sequence[str]) -> None:
    """Write a row a family: its split, names, licence, package, and the file that its pictures were drawn from."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([split, *_row(face)] for face, split in zip(faces, splits, strict=True))


def _row(face: Face) -> list[str | int]:
    return [getattr(face, column) for column in COLUMNS[1:]]


def read_table(path: Path) -> list[Mapping[str, str]]:
    """Return the rows that :func:`write_table` wrote.

    Raises:
        ValueError: if it is no such table.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or set(rows[0]) != set(COLUMNS):
        raise ValueError(f"families must be a table with the columns {COLUMNS}, got {path}")
    return list(rows)


def write_sheet(path: Path, pictures: Pictures) -> None:
    """Write a PNG with a row a family and a column a character, white on black.

    Args:
        path: Where to.
        pictures: ``(families, characters, size, size)`` of levels 0 to 15.
    """
    families, characters, size, _ = pictures.shape
    tiled: NDArray[np.uint8] = pictures.transpose(0, 2, 1, 3).reshape(families * size, characters * size)
    Image.fromarray(tiled * np.uint8(_GREY)).quantize(16).save(path, "PNG", optimize=True)
