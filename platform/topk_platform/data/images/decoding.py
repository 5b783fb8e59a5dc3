"""Decoding of image files to pixels as a viewer shows them, many files at once."""

from __future__ import annotations

import os
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL.ExifTags import Base
from torch import Tensor

from topk_platform.errors import UserError
from topk_platform.specs.checks import check

__all__ = [
    "MODES",
    "UnreadableImageError",
    "appearance",
    "cores",
    "covering",
    "crop",
    "decoders",
    "is_on_its_side",
    "pool",
    "square",
    "why_unreadable",
    "without_range",
]

_TURNED = (2, 3, 4, 5, 6, 7, 8)  # EXIF's values of images that are stored rotated or mirrored
_WITHOUT_RANGE = {"F": "floats", "I": "32 bits"}
_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    struct.error,
)  # the errors that Pillow raises for broken EXIF data
_ON_ITS_SIDE = (5, 6, 7, 8)  # orientations with width and height exchanged


def appearance(image: Image.Image, mode: str = "RGB") -> Image.Image:
    """Return an opened image as a viewer shows it.

    The image is rotated by its EXIF orientation, transparent parts become white, and the upper eight of 16 bits per
    channel are kept. Pillow alone would leave a photo on its side, make transparent parts black, and 16 bits white.

    Args:
        image: An image that ``PIL.Image.open`` returned. It is read to its end.
        mode: Pillow's mode of the result: ``"L"``, ``"RGB"`` or ``"RGBA"``, which keeps transparency.

    Raises:
        OSError, SyntaxError, ValueError: if the file is cut off or holds something else.

    Example:
        >>> from PIL import Image
        >>> appearance(Image.new("LA", (1, 1), (0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    deep = _has_16_bits(image)
    if _orientation(image) in _TURNED:
        image = ImageOps.exif_transpose(image)
    if deep:
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data and mode != "RGBA":
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image if image.mode == mode else image.convert(mode)


def without_range(image: Image.Image) -> str:
    """Return what is wrong with an opened image whose pixels are floats or of 32 bits; empty for any other.

    No file says which of their values are black and white, and Pillow would clip them at 0 and 255.
    """
    if image.mode not in _WITHOUT_RANGE or _has_16_bits(image):
        return ""
    return (
        f"its pixels are of Pillow's mode {image.mode} ({_WITHOUT_RANGE[image.mode]}), and no file says which values "
        "are black and white: save it with 8 or 16 bits per channel"
    )


def is_on_its_side(image: Image.Image) -> bool:
    """Return whether an opened image, not yet read, has the width and height of what a viewer shows exchanged.

    Pillow gives a TIFF the size of what a viewer shows as soon as it is opened.
    """
    return image.format != "TIFF" and _orientation(image) in _ON_ITS_SIDE


def _has_16_bits(image: Image.Image) -> bool:
    # Pillow opens a PGM of 16 bits in its mode of 32 bits, and scales its values to 16.
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM")


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(Base.Orientation)
    except _BROKEN:  # viewers show such an image as it is stored
        return 1
    return value if isinstance(value, int) else 1


Pixels = NDArray[np.uint8]

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's modes by the number of channels."""

_VARIABLE = "TOPK_DECODERS"
_HEIC = re.compile(rb"....ftyp(hei[cmsx]|hev[cmsx]|mif1|msf1)", re.DOTALL)


class UnreadableImageError(UserError):
    """A file holds no image, or only part of an image."""


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decoders() -> int:
    """Return the number of decoding threads of a process: the environment's ``TOPK_DECODERS``, or one per core.

    Decoding and scaling release Python's lock. Measurements show that threads therefore decode as many images per
    second as worker processes do. With threads, no pixels are copied between processes.

    Raises:
        UserError: if ``TOPK_DECODERS`` is not a number of at least 1.
    """
    text = os.environ.get(_VARIABLE)
    if text is None:
        return cores()
    if not text.isdigit() or int(text) < 1:
        raise UserError(f"{_VARIABLE} must be a number of threads of at least 1, got {text!r}")
    return int(text)


def pool() -> ThreadPoolExecutor:
    """Return the process's decoding threads, the same ones for all its trials."""
    return _pool(os.getpid(), decoders())


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked process does not have its parent's threads
    return ThreadPoolExecutor(threads, thread_name_prefix="decode")


def square(source: str | Path | BinaryIO | Image.Image, size: int) -> Tensor:
    """Return the square in the middle of an image in RGB, uint8 ``(3, size, size)``, as a viewer shows it.

    Args:
        source: An image file, or an image of Pillow's.
        size: The image is first scaled so that its shorter side has this many pixels. With 0 the whole image is
            returned as it is, uint8 ``(3, height, width)``.

    Raises:
        UnreadableImageError: if the image cannot be read to its end, or is so narrow that it has too many pixels when
            it is scaled.
    """
    try:
        with source if isinstance(source, Image.Image) else Image.open(source) as image:
            sides = (size, size) if size else image.size[:: -1 if not is_on_its_side(image) else 1]
            return torch.from_numpy(covering(image, 3, *sides)).permute(2, 0, 1)
    # Pillow's readers raise each of these for files that are cut off or hold something else.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        name = f"{source}: " if isinstance(source, str | Path) else ""
        raise UnreadableImageError(f"{name}{why_unreadable(source, error)}") from error


def covering(image: Image.Image, channels: int, height: int, width: int) -> Pixels:
    """Return an opened image as a viewer shows it, scaled to cover ``(height, width)`` and cropped to its middle.

    Args:
        image: The image.
        channels: 1 for grey, 3 for colour, 4 for colour with transparency.
        height: The height of the result.
        width: Its width.

    Returns:
        uint8 ``(height, width, channels)``.

    Raises:
        OSError, SyntaxError, ValueError: if it cannot be read.
    """
    fault = without_range(image)
    check(not fault, fault)
    shown = appearance(image, MODES[channels])
    if width * shown.height <= height * shown.width:
        size = max(height * shown.width // shown.height, width), height
    else:
        size = width, max(width * shown.height // shown.width, height)
    fault = _too_many(size)
    check(not fault, fault)
    pixels = np.array(shown.resize(size, Image.Resampling.BILINEAR)).reshape(size[1], size[0], channels)
    top, left = round((size[1] - height) / 2), round((size[0] - width) / 2)
    return pixels[top : top + height, left : left + width]


def decoded(path: Path, resize: int) -> Pixels:
    try:
        with Image.open(path) as image:
            return scaled_image(image, resize)
    except FileNotFoundError as error:
        raise UnreadableImageError(f"image {path} is no longer there") from error
    # Pillow's readers raise each of these for files that are cut off or hold something else.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnreadableImageError(f"image {path} cannot be read: {why_unreadable(path, error)}") from error


def scaled_image(image: Image.Image, resize: int) -> Pixels:
    """Return an opened image as :func:`scaled` does; a JPEG whose pixels are not read yet is changed.

    Raises:
        OSError, SyntaxError, ValueError: if it cannot be read.
    """
    width, height = _size(image.size, resize)
    fault = without_range(image) or _too_many((width, height))
    check(not fault, fault)
    size = (height, width) if is_on_its_side(image) else (width, height)
    # A JPEG that is at least four times as large as needed is decoded at a fraction of its size, but at least
    # twice as large as needed. That is at most a quarter of the work, with no visible difference.
    image.draft("RGB", (2 * width, 2 * height))
    return np.asarray(appearance(image).resize(size, Image.Resampling.BILINEAR))


def why_unreadable(source: object, error: Exception) -> str:
    """Return why an image cannot be read: what a reader says, or that it is a photo in the format of iPhones.

    Args:
        source: The image's path, or something else that holds it.
        error: What the reader raised.
    """
    with suppress(OSError, ValueError):
        if isinstance(source, str | Path) and _HEIC.match(Path(source).read_bytes()):
            return (
                "it is a HEIC photo of an iPhone, whatever its name ends in: save it as JPEG, which the phone does by "
                "itself with Settings, Camera, Formats, Most Compatible"
            )
    return str(error)


def _too_many(size: tuple[int, int]) -> str:
    """Return what is wrong with a scaled image of this width and height; empty if it has few enough pixels."""
    most = 2 * (Image.MAX_IMAGE_PIXELS or size[0] * size[1])
    if size[0] * size[1] <= most:
        return ""
    return f"it is so narrow that it has {size[0]} × {size[1]} pixels when it is scaled, more than {most}"


def _size(size: tuple[int, int], resize: int) -> tuple[int, int]:
    width, height = size
    short = min(size)
    return max(resize * width // short, 1), max(resize * height // short, 1)


def crop(pixels: Pixels, size: int, position: tuple[float, float] | None = None) -> Pixels:
    """Return a square of an image.

    Args:
        pixels: ``(height, width, 3)``, no side shorter than ``size``.
        size: Side of the square.
        position: The position of the square, in ``[0, 1)`` from the top and from the left; None for the middle.

    Example:
        >>> image = np.arange(25, dtype=np.uint8).reshape(5, 5, 1)
        >>> crop(image, 1).item(), crop(image, 1, (0.0, 0.99)).item()
        (12, 4)
    """
    spare = pixels.shape[0] - size, pixels.shape[1] - size
    if position is None:
        top, left = (round(rest / 2) for rest in spare)
    else:
        top, left = (int(part * (rest + 1)) for part, rest in zip(position, spare, strict=True))
    return pixels[top : top + size, left : left + size]
