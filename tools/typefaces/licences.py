"""Which licence a font is under: by the copyright file of its Debian package, else by its own name table."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

__all__ = ["FREE", "licence_of", "package_of"]

FREE = (
    "OFL-1.1",
    "OFL-1.0",
    "Apache-2.0",
    "BSD-3-Clause",
    "ISC",
    "permission of aenigmafonts.com",
    "MIT",
    "CC0-1.0",
    "public domain",
    "Bitstream-Vera",
    "Ubuntu-font-1.0",
    "GUST-font",
    "GPL with font exception",
    "IPA-1.0",
    "permission of the Ume fonts",
)
"""Licences under which pictures of a font's characters may be passed on as one likes.

IPA's licence leaves pictures of characters free in so many words (*digital content*). The GNU GPL without the font
exception and Creative Commons' share-alike licences are not among them: whether a picture of a character is a derived
work there is a question that nobody has to ask of the others.
"""

# In this order, for a text that names several; each is looked for without regard to case. In a text without fields the
# weak ones may be the packaging's.
_WEAK = (
    ("CC0-1.0", r"\bcc0|\bcc-0\b"),
    ("BSD-3-Clause", r"\bbsd"),
    ("ISC", r"\bisc\b"),
    ("MIT", r"\bmit\b|\bexpat\b"),
    ("public domain", r"public.?domain"),
)
_STRONG = (
    (
        "OFL-1.1",
        r"open font licen[cs]e,? *version 1\.1|\bs?i?l?-?ofl[- ]?v?1\.1|scripts\.sil\.org/ofl|openfontlicense",
    ),
    ("OFL-1.0", r"\bofl-1\.0\b"),
    ("OFL-1.1", r"\bsil-?1\.1|\bofl\b|open[ -]font[ -]licen[cs]e"),
    ("GPL with font exception", r"gpl.{0,12}(\+fe\b|font.exception|with.{1,20}font)|font exception"),
    ("IPA-1.0", r"\bipa-1\b"),
    ("permission of the Ume fonts", r"\bumefont\b"),
    ("permission of aenigmafonts.com", r"madduck-special-licen[cs]e"),
    ("Apache-2.0", r"apache"),
    ("GUST-font", r"\bgust\b|\blppl\b"),
    ("Ubuntu-font-1.0", r"ubuntu.font"),
    ("Bitstream-Vera", r"bitstream.?vera"),
)


def licence_of(path: Path, folder: Path, said: str) -> str:
    """Return the name of a font's licence, or ``""`` if it is none of :data:`FREE`.

    Args:
        path: The font file, somewhere below ``folder``.
        folder: Where packages were unpacked, each into a folder of its own, or fonts lie as one likes.
        said: What the font itself says of its licence, for fonts of no package.
    """
    package = _package_folder(path, folder)
    if package is None:
        return _named(said)
    text = _copyright(package)
    field = _license_field(text, path.relative_to(package).as_posix())
    return _named(field) if field else _named(text, _STRONG)


def package_of(path: Path, folder: Path) -> str:
    """Return the package that a font was unpacked from, as ``"name version"``, or ``""``.

    For Debian's packages it is read from a file ``CONTROL`` in the package's folder, which
    ``dpkg-deb -f FILE Package Version`` prints; for npm's from their ``package.json``.
    """
    folder /= path.relative_to(folder).parts[0]
    if (described := folder / "package.json").is_file():
        fields = json.loads(described.read_text(encoding="utf-8"))
        return f"{fields.get('name', '')} {fields.get('version', '')}".strip()
    control = folder / "CONTROL"
    if not control.is_file():
        return ""
    fields = dict(line.split(": ", 1) for line in control.read_text().splitlines() if ": " in line)
    return f"{fields.get('Package', '')} {fields.get('Version', '')}".strip()


def _package_folder(path: Path, folder: Path) -> Path | None:
    inside = path.relative_to(folder).parts
    package = folder / inside[0]
    return package if len(inside) > 1 and (package / "usr" / "share" / "doc").is_dir() else None


@lru_cache(maxsize=512)
def _copyright(package: Path) -> str:
    files = sorted((package / "usr" / "share" / "doc").glob("*/copyright"))
    return files[0].read_text(errors="replace") if files else ""


def _license_field(text: str, inside: str) -> str:
    """Return what a copyright file says of a font: the field of the last paragraph for it, or ``""``."""
    result = ""
    for paragraph in re.split(r"\n\s*\n", text):
        files = re.search(r"^Files:(.*?)(?=^\S|\Z)", paragraph, re.MULTILINE | re.DOTALL)
        licence = re.search(r"^License:(.*)$", paragraph, re.MULTILINE)
        if files and licence and any(_matches(glob, inside) for glob in files[1].split()):
            result = licence[1]
    return result


def _matches(glob: str, inside: str) -> bool:
    """Return whether a pattern is for a font: for all files, or by its name, as its sources lie in other folders."""
    pattern = glob.rpartition("/")[2].partition(".")[0]
    stem, _, suffix = inside.rpartition("/")[2].rpartition(".")
    return glob in ("*", f"*.{suffix}") or (pattern != "*" and fnmatchcase(stem, pattern))


def _named(text: str, signs: tuple[tuple[str, str], ...] = (*_STRONG, *_WEAK)) -> str:
    text = " ".join(text.split())
    return next((name for name, sign in signs if re.search(sign, text, re.IGNORECASE)), "")
