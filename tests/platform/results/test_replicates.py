"""Comparisons of several studies together, where the differences have no spread."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from topk_platform.records import Tally
from topk_platform.results import Cell, estimate
from topk_platform.results.comparisons import Compared, Situation
from topk_platform.results.replicates import Pooled, judged, luck_of, pooled

LEVEL, ROUNDED = [0.25, 0.25, 0.25], [0.91 - 0.81, 0.92 - 0.82, 0.9 - 0.8]


def compared(study: str, differences: Sequence[float]) -> Compared:
    """A comparison of arms that were searched once, the same in each study."""
    cell = Cell(None, estimate(differences), confirmed=Tally(3))
    situation = Situation(100, 5_000)
    return Compared(
        study, "r", "mlp", "ldam", "cross_entropy", "top5", situation, cell, Tally(3), setup="same"
    )


def together(*differences: Sequence[float]) -> Pooled:
    """The comparison that several studies made, with the luck of the search that they show."""
    parts = [compared(f"s{i}", of_study) for i, of_study in enumerate(differences)]
    (result,) = judged(pooled(parts, luck_of(parts)))
    return result


@pytest.mark.parametrize("equal", [LEVEL, ROUNDED, [-value for value in ROUNDED], [0.0] * 3])
def test_differences_that_are_all_equal_show_no_spread_and_are_not_marked(equal: Sequence[float]) -> None:
    """Test sets are small, so two studies may agree by chance."""
    result = together(equal, equal)
    assert result.ahead.mean == pytest.approx(equal[0])
    assert result.ahead.half_width == pytest.approx(0, abs=1e-12) and result.mark == ""


def test_differences_with_a_spread_are_marked() -> None:
    assert together([0.25, 0.26, 0.24], [0.25, 0.26, 0.24]).mark == "better"
    assert together([-0.25, -0.26, -0.24], [-0.25, -0.26, -0.24]).mark == "worse"
