"""Tables on terminals: no line is longer than the terminal, and from 60 columns on no number is broken."""

from __future__ import annotations

import io
import re
from functools import cache

import pytest
from rich.console import Console

from topk_platform.reports.tables.terminal import to_rich
from topk_platform.results.table import Table
from topk_studies import evidence

STUDIES = ("kanji_map", "letters")  # 3 losses in 18 regimes; 9 in 7, of which neither fits as columns
NUMBER = re.compile(r"\d+\.\d ± \d+\.\d")


@cache
def table_of(name: str) -> Table:
    (shipped,) = evidence(name)
    return shipped.table


@cache
def printed(name: str, width: int, *, transpose: bool = False) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(to_rich(table_of(name), ("top1",), transpose=transpose))
    return [line for line in file.getvalue().splitlines() if line[:1] in "┏┃┡│├└ᅠ"]


def numbers_of(lines: list[str]) -> list[str]:
    return sorted(NUMBER.findall("\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")))


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_table_fits_and_its_numbers_stay_whole(name: str, width: int) -> None:
    lines = printed(name, width)
    assert max(map(len, lines)) <= width
    wide = printed(name, 100_000)
    assert sum(line.startswith("┏") for line in wide) == 1
    assert numbers_of(lines) == numbers_of(wide) and len(numbers_of(wide)) > 40
