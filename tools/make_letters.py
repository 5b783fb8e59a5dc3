"""Make the datasets `letters` and `kanji` again, or others of characters, from a folder of fonts.

    python tools/make_letters.py FONTS --out letters.npz --table letters.csv
    python tools/make_letters.py FONTS --out again.npz --families platform/topk_platform/data/datasets/letters.csv
    python tools/make_letters.py FONTS --out greek.npz --characters ΑΒΓΔΕΖΗΘαβγδεζηθ --size 32
    python tools/make_letters.py FONTS --out kanji.npz --characters-file tools/kanji.txt
        --smallest --families platform/topk_platform/data/datasets/kanji.csv

FONTS holds fonts as one likes, or packages of Debian and npm, each unpacked into a folder of its own. The licences of
Debian's are read from their copyright files, all others from the fonts themselves::

    apt-get download fonts-inter && dpkg -x fonts-inter_*.deb FONTS/fonts-inter
    dpkg-deb -f fonts-inter_*.deb Package Version > FONTS/fonts-inter/CONTROL
    npm pack @expo-google-fonts/stick && mkdir FONTS/stick
    tar xzf expo-google-fonts-stick-*.tgz -C FONTS/stick --strip-components 1

With the same fonts, and the same versions of Pillow and of the FreeType in it, every byte is the same. ``letters`` of
the platform reads the result: ``Regime("greek", "letters", options={"file": "greek.npz"})``.
"""

from __future__ import annotations

import argparse
import logging
import math
import string
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

from typefaces.choosing import CLONES, KIN, choose
from typefaces.faces import Face, find_faces, read_faces
from typefaces.files import read_table, write_pictures, write_sheet, write_table
from typefaces.pictures import Pictures, draw_face
from typefaces.shapes import report

__all__ = ["main"]

_CHARACTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
_SIZES = {"train": 150, "validation": 50, "test": 160}
_LOOKED_AT = 150  # characters, by which families are chosen
_SEED = 4  # of the first eight the one whose splits are most alike in how legible their families are


@dataclass(frozen=True)
class _Made:
    faces: list[Face]
    splits: list[str]
    pictures: Pictures


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Raises:
        SystemExit: with a line of what is wrong, if an argument cannot be used or no family is left.
    """
    given = _parser().parse_args(arguments)
    logging.getLogger("fontTools").setLevel(logging.ERROR)  # it warns of tables that are not looked at
    try:
        if given.characters_file:
            given.characters = "".join(given.characters_file.read_text(encoding="utf-8").split())
        _check(given)
        made = _again(given) if given.families else _chosen(given)
        write_pictures(given.out, made.pictures, made.splits, given.characters, given.smallest)
    except (ValueError, OSError) as error:
        raise SystemExit(f"make_letters: {error}") from error
    if given.table:
        write_table(given.table, made.faces, made.splits)
    if given.sheet:
        rows = made.pictures[:: max(1, len(made.faces) // given.rows)][: given.rows]
        write_sheet(given.sheet, rows[:, : given.columns])
    if given.shapes:
        given.shapes.write_text(report(made.pictures, given.characters))
    counts = {name: made.splits.count(name) for name in _SIZES}
    _say(
        f"{given.out}: {len(given.characters)} characters of {counts} families, {given.out.stat().st_size:,} bytes"
    )


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("fonts", type=Path, help="folder that is searched for fonts")
    parser.add_argument("--out", type=Path, required=True, help="the .npz to write")
    parser.add_argument(
        "--table", type=Path, help="a .csv to write: families, designers, licences, files, splits"
    )
    parser.add_argument("--sheet", type=Path, help="a .png to write: some of the families")
    parser.add_argument(
        "--shapes", type=Path, help="a .md to write: which characters are one shape in how many"
    )
    parser.add_argument("--rows", type=int, default=24, help="of the sheet")
    parser.add_argument("--columns", type=int, default=62, help="of the sheet")
    parser.add_argument(
        "--families", type=Path, help="take exactly the families and splits of this earlier --table"
    )
    parser.add_argument("--characters", default=_CHARACTERS, help="the classes, in order")
    parser.add_argument("--characters-file", type=Path, help="a text file of the classes, in their place")
    parser.add_argument("--smallest", action="store_true", help="compress by LZMA, slower to read")
    parser.add_argument("--size", type=int, default=28, help="pixels of a picture's side, even")
    for name, size in _SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=size, help=f"families of the {name} split")
    parser.add_argument("--per-package", type=int, help="families of one package at most")
    parser.add_argument("--clones", type=float, default=CLONES, help="families that differ by less are one")
    parser.add_argument("--kin", type=float, default=KIN, help="families that differ by less share a split")
    parser.add_argument("--any-licence", action="store_true", help="take fonts of an unknown licence too")
    parser.add_argument("--seed", type=int, default=_SEED, help="of another division into splits")
    return parser


def _check(given: argparse.Namespace) -> None:
    if not given.fonts.is_dir():
        raise ValueError(f"FONTS must be a folder, got {given.fonts}")
    if given.out.suffix != ".npz":
        raise ValueError(f"--out must end in .npz, got {given.out}")
    if given.size < 2 or given.size % 2:
        raise ValueError(f"--size must be even and at least 2, got {given.size}")
    if len(set(given.characters)) < max(len(given.characters), 2):
        raise ValueError(f"--characters must be two or more, each once, got {given.characters!r}")
    for name in (*_SIZES, "rows", "columns"):
        if getattr(given, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(given, name)}")


def _chosen(given: argparse.Namespace) -> _Made:
    families = find_faces(given.fonts, given.characters)
    free = [face for face in families if face.licence or given.any_licence]
    looked_at = given.characters[:: math.ceil(len(given.characters) / _LOOKED_AT)]
    faces, pictures = _drawn(given, free, looked_at)
    sizes = {name: getattr(given, name) for name in _SIZES}
    choice = choose(faces, pictures, looked_at, sizes, given.seed, given.per_package, given.clones, given.kin)
    blank = {"of unknown licence": len(families) - len(free), "blank or damaged": len(free) - len(faces)}
    _say(f"{len(families)} families have the characters; left out: {blank | choice.left_out}")
    if empty := [name for name, places in choice.splits.items() if not places]:
        raise ValueError(f"FONTS must leave a family for every split, got none for {empty}")
    places = [index for chosen in choice.splits.values() for index in chosen]
    splits = [name for name, chosen in choice.splits.items() for _ in chosen]
    chosen = [faces[index] for index in places]
    return _Made(chosen, splits, pictures[places] if looked_at == given.characters else _all(given, chosen))


def _again(given: argparse.Namespace) -> _Made:
    rows = read_table(given.families)
    faces = [_face(given, row["file"], int(row["number"]), row["sha256"]) for row in rows]
    return _Made(faces, [row["split"] for row in rows], _all(given, faces))


def _all(given: argparse.Namespace, faces: Sequence[Face]) -> Pictures:
    """Return every character of faces that draw every one."""
    kept, pictures = _drawn(given, faces, given.characters)
    if len(kept) < len(faces):
        failed = sorted({face.file for face in faces} - {face.file for face in kept})
        raise ValueError(f"FONTS must draw every character, got {failed} of which they do not")
    return pictures


def _face(given: argparse.Namespace, file: str, number: int, sha256: str) -> Face:
    result = [face for face in read_faces(given.fonts / file, given.fonts) if face.number == number]
    if [face.sha256 for face in result] != [sha256]:
        raise ValueError(
            f"{file} must be in FONTS with the SHA-256 {sha256}..., got {[f.sha256 for f in result]}"
        )
    return result[0]


def _drawn(given: argparse.Namespace, faces: Sequence[Face], characters: str) -> tuple[list[Face], Pictures]:
    """Return the faces that draw every one of some characters, and their pictures."""
    files, numbers = [given.fonts / face.file for face in faces], [face.number for face in faces]
    with ProcessPoolExecutor() as pool:
        drawn = list(pool.map(draw_face, files, numbers, repeat(characters), repeat(given.size)))
    kept = [face for face, pictures in zip(faces, drawn, strict=True) if pictures is not None]
    if not kept:
        raise ValueError(
            f"FONTS must hold a free font with every character, got {len(faces)} of which none draws them"
        )
    return kept, np.stack([pictures for pictures in drawn if pictures is not None])


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
