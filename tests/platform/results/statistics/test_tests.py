"""Holm's correction and the marks that are left of a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_platform.records import Tally
from topk_platform.results.cells import Cell, _improvement, marked
from topk_platform.results.statistics import estimate, holm


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_rejects_step_by_step(values: list[float]) -> None:
    """At any level, what is below it is what Holm's procedure rejects, one after another until one is not."""
    p = dict(enumerate(values))
    result = holm(p)
    for level in (0.01, 0.05, 0.3):
        rejected = set()
        for index, name in enumerate(sorted(p, key=p.__getitem__)):
            if p[name] * (len(p) - index) > level:
                break
            rejected.add(name)
        assert {name for name, value in result.items() if value <= level} == rejected


def test_marks_are_corrected_for_the_cells_of_a_family() -> None:
    """p = 0.022 is a mark alone and none among four; the same of a secondary metric stay a family of their own."""
    values = [0.02, 0.03, 0.05, 0.06]
    result = estimate(values)
    assert result is not None and 0.0125 < result.p < 0.05
    cell = Cell(result, result, confirmed=Tally(completed=4))
    one = marked({("a", "r", "top1"): (cell, Tally())})
    assert (one["a", "r", "top1"].mark, one["a", "r", "top1"].p_holm) == ("better", result.p)
    several = marked(
        {
            (row, "r", m): (replace(cell, primary=m == "top1"), Tally())
            for row in "abcd"
            for m in ("top1", "top5")
            if row == "a" or m == "top1"
        }
    )
    assert {key: c.mark for key, c in several.items()} == {
        **{(row, "r", "top1"): "" for row in "abcd"},
        ("a", "r", "top5"): "better",
    }
    assert several["a", "r", "top1"].p_holm == pytest.approx(4 * result.p)


def test_the_detectable_effect_is_that_of_the_tests_that_are_made() -> None:
    """A difference that nobody tests, because its arm was searched once, makes the other's test no stricter."""
    result = estimate([0.02, 0.03, 0.05, 0.06])
    assert result is not None and result.precision is not None
    cells = {
        (row, "r", "top1"): (Cell(result, replace(result, covers=covers)), Tally())
        for row, covers in (("a", "seeds"), ("b", "seeds, one search"), ("c", "seeds, one search"))
    }
    both = marked(cells)  # type: ignore[arg-type]
    assert both["a", "r", "top1"].tests == 1
    assert both["a", "r", "top1"].detectable == result.precision.detectable(0.975)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=6)
)
def test_the_probability_of_improvement_is_mann_and_whitneys(ours: list[int], theirs: list[int]) -> None:
    pairs = [(a > b) + (a == b) / 2 for a in ours for b in theirs]
    assert _improvement(ours, theirs) == pytest.approx(sum(pairs) / len(pairs))
    assert _improvement(ours, theirs) + _improvement(theirs, ours) == pytest.approx(1)
