"""Write `tools/kanji.txt`: the characters of JIS X 0208's first level, the most frequent first.

    python tools/order_kanji.py wikipedia_characters.csv > tools/kanji.txt

The counts are of `data/wikipedia_characters.csv` of https://github.com/scriptin/kanji-frequency (Kanji usage frequency,
by Dmitry Shpika, CC BY 4.0), commit c343b96: how often each character is used in articles of the Japanese Wikipedia.
Characters with equal counts stay in the order of the standard.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["first_level", "main"]

_ROWS = range(16, 48)  # of the standard's table; each has 94 cells
_LINE = 100  # characters


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    (path,) = sys.argv[1:] if arguments is None else arguments
    with Path(path).open(newline="", encoding="utf-8") as file:
        counts = {row["char"]: int(row["char_count"]) for row in csv.DictReader(file)}
    ordered = "".join(sorted(first_level(), key=lambda character: -counts.get(character, 0)))
    for start in range(0, len(ordered), _LINE):
        sys.stdout.write(ordered[start : start + _LINE] + "\n")


def first_level() -> str:
    """Return the 2,965 characters of JIS X 0208's first level, in the order of the standard.

    Example:
        >>> len(first_level()), first_level()[:5]
        (2965, '亜唖娃阿哀')
    """
    cells = (bytes([0xA0 + row, cell]) for row in _ROWS for cell in range(0xA1, 0xFF))
    return "".join(cell.decode("euc_jp", errors="ignore") for cell in cells)


if __name__ == "__main__":
    main()
