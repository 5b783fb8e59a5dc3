"""Widths of a table's columns on a terminal, so that no word and no number is broken."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

__all__ = ["fitted", "needed", "spare"]

_FRAME = 3  # letters between two columns: a blank, a line and a blank

Column = Sequence[Text]
"""The texts of a column, its header among them."""


def needed(column: Column) -> int:
    """Return how many letters a column needs at least, its frame among them."""
    return _least(column) + _FRAME


def spare(columns: Sequence[Column], width: int) -> int:
    """Return how many letters of a width remain if each column is as wide as its longest word; below 0 if they lack.

    Example:
        >>> spare([[Text("top k"), Text("0.5")], [Text("two words")]], 20)
        5
    """
    return width - 1 - sum(map(needed, columns))


def fitted(columns: Sequence[Column], width: int) -> list[int]:
    """Return the columns' widths: at least those of their longest words, and no column wider than it can use.

    What remains is shared so that the narrowest columns are as wide as possible.

    Example:
        >>> fitted([[Text("two words")], [Text("a few words more")], [Text("n")]], 30)
        [9, 10, 1]
    """
    room = width - 1 - _FRAME * len(columns)
    least, most = [_least(column) for column in columns], [_most(column) for column in columns]

    def filled(level: int) -> list[int]:
        return [min(max(level, low), high) for low, high in zip(least, most, strict=True)]

    level = max((level for level in range(max(most, default=0) + 1) if sum(filled(level)) <= room), default=0)
    widths = filled(level)
    left = max(0, room - sum(widths))
    for number, wide in enumerate(widths):
        more = min(left, most[number] - wide)
        widths[number] += more
        left -= more
    return widths


def _most(column: Column) -> int:
    return max(cell_len(line) for text in column for line in text.plain.split("\n"))


def _least(column: Column) -> int:
    return max(cell_len(word) for text in column for word in re.split(r"[ \n]", text.plain))
