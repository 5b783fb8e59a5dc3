"""Images as a viewer shows them: upright, on white, with eight bits per channel."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["appearance", "is_on_its_side", "without_range"]

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
    from PIL import Image, ImageOps  # noqa: PLC0415 - comes with torchvision

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
    from PIL.ExifTags import Base  # noqa: PLC0415

    try:
        value = image.getexif().get(Base.Orientation)
    except _BROKEN:  # viewers show such an image as it is stored
        return 1
    return value if isinstance(value, int) else 1
