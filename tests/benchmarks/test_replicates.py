"""The page of statistics has the numbers that benchmarks/replicates.py prints from findings of one search."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def replicates() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("replicates")
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.slow
def test_the_page_has_what_is_printed(replicates: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    replicates.main()
    printed = capsys.readouterr().out
    page = (ROOT / "docs" / "statistics.md").read_text()
    for pattern, row in (
        (
            r"from search to search by (\S+) points",
            "a difference moves from search to search by | {} points | {} points",
        ),
        (r"standard error says (\S+);", "its standard error said | {} points | {} points"),
        (r"as printed (\d+),", "disjoint 95 % intervals, before | {} of 53 | {} of 53"),
        (r"with luck (\d+)", "luck that the other regimes show | {} of 53 | {} of 53"),
        (r"marks: (\d+ of \d+) recur", "marks that recurred in the other study, before | {} | {}"),
        (r"searches each, (\d+) marked", "all studies' searches together | {} | {}"),
    ):
        assert row.format(*re.findall(pattern, printed)) in page
    (tested,) = re.findall(r"top-K: (\d+) pairs", printed)
    assert tested == "53"
