"""Pictures of a face's characters: drawn, and compared with other faces'."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

__all__ = ["Pictures", "distances", "draw_face", "legible", "single_case"]

_EM = 256  # pixels of the em that outlines are drawn at, so large that hints move nothing by a pixel of the picture
_SPARE = 8  # around what FreeType says the outline takes
_LEVELS = 15
_NEAREST = 5
_LEGIBLE = 0.35
_OF_EACH_KIND = 0.3
_SHAPES = "abdeghnqrt"  # small letters that are no smaller capitals
_ONE_CASE = 0.8

Pictures = NDArray[np.uint8]


def draw_face(path: Path, number: int, characters: str, size: int) -> Pictures | None:
    """Return a face's characters, each scaled to fill its picture, or None if one is blank or cannot be drawn.

    The character's bounding box is scaled, its proportions kept, until its longer side is ``size`` but for a margin of
    a fourteenth on each side, and put in the middle.

    Args:
        path: The font file.
        number: Which of a collection's faces.
        characters: What to draw.
        size: Pixels of a picture's side.

    Returns:
        Sixteen levels of ink, 0 to 15, uint8 ``(characters, size, size)``.
    """
    try:
        font = ImageFont.truetype(str(path), _EM, index=number, layout_engine=ImageFont.Layout.BASIC)
        drawn = [_draw(font, character, size) for character in characters]
    except (OSError, ValueError):  # what FreeType says of a damaged outline
        return None
    pictures = [picture for picture in drawn if picture is not None]
    return np.stack(pictures) if len(pictures) == len(characters) else None


def _draw(font: ImageFont.FreeTypeFont, character: str, size: int) -> Pictures | None:
    left, top, right, bottom = (int(side) for side in font.getbbox(character, anchor="ls"))
    canvas = Image.new("L", (right - left + 2 * _SPARE, bottom - top + 2 * _SPARE))
    origin = (_SPARE - left, _SPARE - top)
    ImageDraw.Draw(canvas).text(origin, character, fill=255, font=font, anchor="ls")
    box = canvas.getbbox()
    return None if box is None else _fitted(canvas.crop(box), size)


def _fitted(ink: Image.Image, size: int) -> Pictures:
    side = round(max(ink.size) * size / (size - 2 * (size // 14)))
    square = Image.new("L", (side, side))
    square.paste(ink, ((side - ink.width) // 2, (side - ink.height) // 2))
    grey = np.asarray(square.resize((size, size), Image.Resampling.BOX), np.uint16)
    return ((grey * _LEVELS + 127) // 255).astype(np.uint8)


def legible(pictures: Pictures, characters: str) -> NDArray[np.bool_]:
    """Return which faces draw the characters as others do: barcodes, ciphers and ornaments do not.

    A character is drawn as others do if the mean picture of its own class, over all faces, is among the five means that
    are nearest to it. 35 % must be so in all, and 30 % of each kind: capitals, small letters, digits and what else
    there is.

    Args:
        pictures: ``(faces, characters, size, size)``.
        characters: The classes.

    Returns:
        ``(faces,)``.
    """
    right = np.stack(
        [(apart < np.diagonal(apart)[:, None]).sum(1) < _NEAREST for apart in _from_means(pictures)]
    )
    kinds = np.array([unicodedata.category(character) for character in characters])
    each = [right[:, kinds == kind].mean(1) >= _OF_EACH_KIND for kind in np.unique(kinds)]
    both: NDArray[np.bool_] = (right.mean(1) >= _LEGIBLE) & np.logical_and.reduce(each)
    return both


def _from_means(pictures: Pictures) -> Iterator[NDArray[np.float32]]:
    """Yield for each face how far each character is from each class's mean, but for a term of its own, ``(C, C)``."""
    flat = pictures.reshape(*pictures.shape[:2], -1)
    means = flat.mean(0, dtype=np.float32)
    squares = (means**2).sum(1)
    for characters in flat:
        yield squares - 2 * characters.astype(np.float32) @ means.T


def single_case(pictures: Pictures, characters: str) -> NDArray[np.bool_]:
    """Return which faces have capitals in place of the small letters ``(faces,)``; none without letters of both cases.

    Such are those in which, of 80 % of the letters of two shapes, A and a, one is nearer to the other's mean picture
    than to its own.
    """
    pairs = [
        (characters.index(c), characters.index(c.upper()))
        for c in _SHAPES
        if {c, c.upper()} <= set(characters)
    ]
    if not pairs:
        return np.zeros(len(pictures), bool)
    small, capital = map(list, zip(*pairs, strict=True))
    wrong = [
        (apart[small, small] > apart[small, capital]) | (apart[capital, capital] > apart[capital, small])
        for apart in _from_means(pictures)
    ]
    alike: NDArray[np.bool_] = np.stack(wrong).mean(1) >= _ONE_CASE
    return alike


def distances(pictures: Pictures) -> NDArray[np.float32]:
    """Return how far faces are from each other: ink that differs over ink that one has, ``(faces, faces)``.

    0 for the same pictures, about 1 for characters at random.
    """
    flat = pictures.reshape(len(pictures), -1).astype(np.float32)
    squares = (flat**2).sum(1)
    apart = np.maximum(squares[:, None] + squares[None] - 2 * flat @ flat.T, 0)
    shares: NDArray[np.float32] = np.sqrt(apart / (squares[:, None] + squares[None]))
    return shares
