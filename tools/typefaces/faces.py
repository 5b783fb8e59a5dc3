"""Font files: which families there are, and the face that stands for each."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fontTools.ttLib import TTCollection, TTFont, TTLibError

from typefaces.licences import licence_of, package_of

__all__ = ["Face", "find_faces", "read_faces"]

_SUFFIXES = (".otf", ".ttf", ".ttc", ".otc")
_NAMES = {"family": (16, 1), "style": (17, 2), "designer": (9,), "foundry": (8,), "licence": (13, 14)}
_DAMAGE = (
    TTLibError,
    struct.error,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
)
_OLD_WEIGHTS = 10  # some files have 4 for 400
_STYLES = re.compile(
    r"[ _-]?(Thin|Extra|Ultra|Light|Medium|Semi|Demi|Bold|Black|Heavy|Italic|Oblique|Regular|Book)$"
)
_REGULAR = ("regular", "book", "roman", "normal", "medium", "")


@dataclass(frozen=True)
class Face:
    """One face of a font file, by its own tables.

    Args:
        file: The font file, relative to the folder that was searched.
        number: Which of a collection's faces; 0 of a file with one.
        family: The typographic family's name.
        style: The face's name in the family, such as ``"Regular"``.
        designer: Who drew it, or ``""``.
        foundry: Who published it: the manufacturer's name, else the vendor's four letters.
        licence: By a name as SPDX has it, or ``""`` where none is recognised.
        package: The Debian package and its version, or ``""``.
        sha256: Of the file, its first 16 digits.
        strangeness: How far from a family's plain upright face of normal weight and width; 0 is that.
    """

    file: str
    number: int
    family: str
    style: str
    designer: str
    foundry: str
    licence: str
    package: str
    sha256: str
    strangeness: float


def find_faces(folder: Path, characters: str) -> list[Face]:
    """Return the plainest face of every family below a folder that has an outline for each of the characters.

    Args:
        folder: Searched for OpenType and TrueType files, and collections of them.
        characters: What a face must have.

    Returns:
        Faces ordered by family.
    """
    best: dict[str, Face] = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES and p.is_file()):
        for face in read_faces(path, folder, characters):
            key = _without_style(face.family).casefold()
            if key not in best or _rank(face) < _rank(best[key]):
                best[key] = face
    return sorted(best.values(), key=lambda face: (face.family.casefold(), face.file))


def _without_style(family: str) -> str:
    """Return a family's name without the weights and slants that some files have at its end."""
    shorter = _STYLES.sub("", family)
    return family if shorter == family or not shorter else _without_style(shorter)


def _rank(face: Face) -> tuple[float, int, str, int]:
    return face.strangeness, len(face.style), face.file, face.number


def read_faces(path: Path, folder: Path, characters: str = "") -> list[Face]:
    """Return the faces of a font file that have an outline for each of the characters; none of one that is damaged."""
    try:
        with path.open("rb") as file:
            fonts = enumerate(_fonts(path, file))
            return [_face(font, number, path, folder) for number, font in fonts if _covers(font, characters)]
    except _DAMAGE:
        return []


def _fonts(path: Path, file: Any) -> Iterable[TTFont]:
    if path.suffix.lower() in (".ttc", ".otc"):
        return TTCollection(file, lazy=True).fonts  # type: ignore[no-any-return]
    return [TTFont(file, lazy=True)]


def _covers(font: TTFont, characters: str) -> bool:
    outlines = any(table in font for table in ("glyf", "CFF ", "CFF2"))
    mapped = font.getBestCmap() if outlines else None
    return mapped is not None and all(ord(character) in mapped for character in characters)


def _face(font: TTFont, number: int, path: Path, folder: Path) -> Face:
    said = {field: _said(font, *numbers) for field, numbers in _NAMES.items()}
    style = said["style"]
    return Face(
        file=path.relative_to(folder).as_posix(),
        number=number,
        family=said["family"] if re.search("[A-Za-z]", said["family"]) else path.stem,
        style=style,
        designer=said["designer"],
        foundry=said["foundry"] or _vendor(font),
        licence=licence_of(path, folder, said["licence"]),
        package=package_of(path, folder),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        strangeness=_strangeness(font, style),
    )


def _said(font: TTFont, *numbers: int) -> str:
    texts = (font["name"].getDebugName(number) for number in numbers)
    return " ".join(next((text for text in texts if text), "").split())


def _vendor(font: TTFont) -> str:
    return str(getattr(font["OS/2"], "achVendID", "")).strip(" \0") if "OS/2" in font else ""


def _strangeness(font: TTFont, style: str) -> float:
    return sum(_oddities(font, style))


def _oddities(font: TTFont, style: str) -> Iterator[float]:
    if "OS/2" in font:
        weight = font["OS/2"].usWeightClass
        yield abs((weight if weight >= _OLD_WEIGHTS else 100 * weight) - 400) / 100
        yield abs(font["OS/2"].usWidthClass - 5)
    if "post" in font:
        yield 3.0 * bool(font["post"].italicAngle)
    yield 0.5 * (style.casefold() not in _REGULAR)
