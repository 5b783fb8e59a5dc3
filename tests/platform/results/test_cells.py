"""The marks of a table: families of tests, equivalence, and what a difference covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from made_histories import make_runs

from topk_platform.protocol import Tally
from topk_platform.results.cells import Cell, CellKey, cell_of, marked
from topk_platform.results.intervals import estimate


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
    assert both["a", "r", "top1"].family_size == 1
    assert both["a", "r", "top1"].detectable == result.precision.detectable(0.975)


def test_an_equivalent_cell_is_marked_so_and_a_lost_seed_takes_that_away() -> None:
    cell = cell_of(
        make_runs([0.751, 0.759, 0.772, 0.74, 0.771, 0.758]),
        make_runs([0.75, 0.76, 0.77, 0.74, 0.77, 0.76]),
        "top3",
    )
    key = ("a", "r", "top3")

    def alike(theirs: Tally, tolerance: float) -> Cell:
        return marked({key: (cell, theirs)}, tolerance)[key]

    assert alike(Tally(completed=6), 0.01).equivalent
    assert not alike(Tally(completed=6), 0.0).equivalent and not alike(Tally(completed=6), 0.001).equivalent
    assert not alike(Tally(completed=6, diverged=1), 0.01).equivalent


def cells_of(
    metric: str, primary: str, differences: Mapping[str, Sequence[float]]
) -> dict[CellKey, tuple[Cell, Tally]]:
    """Cells of one metric by regime, selected by another metric or the same."""
    result = {}
    for regime, values in differences.items():
        shown = dict(enumerate(values, 1))
        cell = Cell(
            estimate(values), estimate(values), metric=metric, primary=metric == primary, differences=shown
        )
        result["svm", regime, metric] = cell, Tally()
    return result


def test_a_balanced_test_set_makes_macro_top5_and_top5_one_question() -> None:
    """The regime's macro top-5 selects, its top-5 has the same values: the same p, corrected for the same tests."""
    even, other = [0.02, 0.03, 0.05, 0.06], [0.01, -0.02, 0.03, 0.01]
    primary = cells_of("macro_top5", "macro_top5", {"tail": even, "tail-2": other})
    both = marked({**primary, **cells_of("top5", "macro_top5", {"tail": even, "tail-2": even})})
    one, twin, apart = (
        both["svm", *key] for key in (("tail", "macro_top5"), ("tail", "top5"), ("tail-2", "top5"))
    )
    assert (twin.p_holm, twin.mark, twin.family_size, twin.primary) == (one.p_holm, one.mark, 2, True)
    assert one.p_holm == pytest.approx(2 * one.difference.p)  # type: ignore[union-attr]
    assert (apart.family_size, apart.primary, apart.p_holm) == (1, False, pytest.approx(apart.difference.p))  # type: ignore[union-attr]
