"""From a file to the pixels of an image, many at once."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topk_platform.data.folder import pixel_folder
from topk_platform.errors import UserError

__all__ = ["UnreadableImageError", "crop", "decoders", "pool", "scaled"]

Pixels = NDArray[np.uint8]

_VARIABLE = "TOPK_DECODERS"
_HEADER = struct.Struct("<II")  # height, width
_FREE = 0.05  # of the disk, which kept pixels leave to others


class UnreadableImageError(UserError):
    """A file holds no image, or not all of one."""


def decoders() -> int:
    """Return how many threads of a process decode images: the environment's ``TOPK_DECODERS``, or one a core.

    Threads, for decoding and scaling leave Python's lock to others: as many images a second as worker processes
    were seen to give, without copying pixels from one process to another.
    """
    wanted = os.environ.get(_VARIABLE)
    if wanted is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not wanted.isdigit() or int(wanted) < 1:
        raise UserError(f"{_VARIABLE} must be a number of threads of at least 1, got {wanted!r}")
    return int(wanted)


def pool() -> ThreadPoolExecutor:
    """Return the process's decoding threads, the same ones for all its trials."""
    return _pool(os.getpid(), decoders())


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a fork has none of its parent's threads
    return ThreadPoolExecutor(threads, thread_name_prefix="decode")


def scaled(path: Path, resize: int) -> Pixels:
    """Return an image in RGB, scaled so that its shorter side is ``resize``: uint8 ``(height, width, 3)``.

    If ``TOPK_CACHE`` names a folder, the pixels are kept there and taken from there the next time, by any process,
    as long as a twentieth of that disk stays free.

    Args:
        path: The image, in any format that Pillow reads.
        resize: Pixels of the shorter side; the longer one is rounded down.

    Raises:
        UnreadableImageError: if it cannot be read to its end.
    """
    folder = pixel_folder()
    if folder is None:
        return _decoded(path, resize)
    place = _place(folder, path, resize)
    kept = _kept(place)
    if kept is None:
        kept = _decoded(path, resize)
        _keep(place, kept)
    return kept


def _decoded(path: Path, resize: int) -> Pixels:
    from PIL import Image  # noqa: PLC0415 - comes with torchvision

    try:
        with Image.open(path) as image:
            width, height = _size(image.size, resize)
            # A JPEG four times as large or more is decoded at a fraction of its size, twice what is wanted or more:
            # a quarter of the work or less, and no visible trace.
            image.draft("RGB", (2 * width, 2 * height))
            pixels = image if image.mode == "RGB" else image.convert("RGB")
            return np.asarray(pixels.resize((width, height), Image.Resampling.BILINEAR))
    except FileNotFoundError as error:
        raise UnreadableImageError(f"image {path} is no longer there") from error
    # Pillow's readers raise each of these for files that are cut off or hold something else.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnreadableImageError(f"image {path} cannot be read: {error}") from error


def _size(size: tuple[int, int], resize: int) -> tuple[int, int]:
    width, height = size
    short = min(size)
    return max(resize * width // short, 1), max(resize * height // short, 1)


def crop(pixels: Pixels, size: int, place: tuple[float, float] | None = None) -> Pixels:
    """Return a square of an image.

    Args:
        pixels: ``(height, width, 3)``, no side shorter than ``size``.
        size: Of the square.
        place: Where, from 0 (top, left) up to but without 1 (bottom, right); None for the middle.

    Example:
        >>> image = np.arange(25, dtype=np.uint8).reshape(5, 5, 1)
        >>> crop(image, 1).item(), crop(image, 1, (0.0, 0.99)).item()
        (12, 4)
    """
    spare = pixels.shape[0] - size, pixels.shape[1] - size
    if place is None:
        top, left = (round(rest / 2) for rest in spare)
    else:
        top, left = (int(part * (rest + 1)) for part, rest in zip(place, spare, strict=True))
    return pixels[top : top + size, left : left + size]


def _place(folder: Path, path: Path, resize: int) -> Path:
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise UnreadableImageError(f"image {path} is no longer there") from error
    text = f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{resize}"
    name = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return folder / name[:3] / name[3:]


def _kept(place: Path) -> Pixels | None:
    """Return pixels of which only those are read that are looked at, or None."""
    try:
        size = place.stat().st_size
        with place.open("rb") as file:
            height, width = _HEADER.unpack(file.read(_HEADER.size))
    except (FileNotFoundError, struct.error):
        return None
    if size != _HEADER.size + 3 * height * width:  # a machine that went down may leave half a file
        return None
    pixels: Pixels = np.memmap(place, np.uint8, "r", _HEADER.size, (height, width, 3))
    return pixels


def _keep(place: Path, pixels: Pixels) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    disk = shutil.disk_usage(place.parent)
    if disk.free - pixels.nbytes < _FREE * disk.total:
        return
    part = place.with_name(f"{place.name}.{uuid.uuid4().hex}")
    part.write_bytes(_HEADER.pack(*pixels.shape[:2]) + pixels.tobytes())
    part.replace(place)  # whole or not at all, whoever else writes it
