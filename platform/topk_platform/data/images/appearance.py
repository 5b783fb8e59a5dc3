"""Images as a viewer shows them: turned as their camera was held, on white, in eight bits."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["appearance", "is_on_its_side"]

_TURNED = (2, 3, 4, 5, 6, 7, 8)  # EXIF's values of an image that is stored otherwise than it is looked at
_BROKEN = (OSError, SyntaxError, ValueError, TypeError, LookupError, struct.error)  # by Pillow, of EXIF data
_ON_ITS_SIDE = (5, 6, 7, 8)  # those of an image whose width is its height


def appearance(image: Image.Image, mode: str = "RGB") -> Image.Image:
    """Return an opened image as a viewer shows it.

    It is turned as its EXIF orientation says, what is transparent is white, and of 16 bits a channel the upper eight
    are kept. Pillow alone would leave a photo on its side, make transparent black, and 16 bits white.

    Args:
        image: As ``PIL.Image.open`` returns it; it is read to its end.
        mode: Pillow's mode of the result: ``"L"``, ``"RGB"`` or ``"RGBA"``, which keeps what is transparent.

    Raises:
        OSError, SyntaxError, ValueError: if the file is cut off or holds something else.

    Example:
        >>> from PIL import Image
        >>> appearance(Image.new("LA", (1, 1), (0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    from PIL import Image, ImageOps  # noqa: PLC0415 - comes with torchvision

    if _orientation(image) in _TURNED:
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data and mode != "RGBA":
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image if image.mode == mode else image.convert(mode)


def is_on_its_side(image: Image.Image) -> bool:
    """Return whether the width of an opened image, which was not read yet, is the height that a viewer shows."""
    return _orientation(image) in _ON_ITS_SIDE


def _orientation(image: Image.Image) -> int:
    from PIL.ExifTags import Base  # noqa: PLC0415

    try:
        value = image.getexif().get(Base.Orientation)
    except _BROKEN:  # viewers show the image all the same
        return 1
    return value if isinstance(value, int) else 1
