"""Comparisons of several studies together, where the differences have no spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from topk_platform.records import Tally
from topk_platform.results import Cell, estimate
from topk_platform.results.comparisons import Compared, Situation
from topk_platform.results.replicates import Luck, Pooled, judged, luck_of, pooled
from topk_platform.results.statistics import Estimate, Precision, critical, p_of

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
    assert result.p_holm is None


def test_differences_with_a_spread_are_marked() -> None:
    assert together([0.25, 0.26, 0.24], [0.25, 0.26, 0.24]).mark == "better"
    assert together([-0.25, -0.26, -0.24], [-0.25, -0.26, -0.24]).mark == "worse"


def repeated(study: str, by_seeds: float, by_images: float, searches: int) -> Compared:
    """A comparison of arms that were searched several times."""
    precision = Precision(by_seeds, by_images, searches, 500, 499)
    half = precision.critical() * precision.error()
    p = p_of(0.02, precision.parts())
    ahead = Estimate(0.02, half, 10, 0.02 - half, 0.02 + half, p, "searches, seeds and images", precision)
    one = compared(study, LEVEL)
    return replace(one, cell=replace(one.cell, difference=ahead), searches=searches)


@pytest.mark.parametrize("searches", [2, 3, 5])
def test_studies_that_share_their_images_are_no_surer_of_them(searches: int) -> None:
    seeds, images = 0.002**2, 0.01**2
    parts = [repeated(study, seeds, images, searches) for study in ("a", "b")]
    (both,) = pooled(parts, {})
    variances = [(seeds, 2 * (searches - 1.0)), (images, 499.0)]
    assert both.ahead.half_width == pytest.approx(critical(variances) * math.sqrt(seeds + images))
    assert both.ahead.half_width > 1.96 * math.sqrt(images)
    assert both.ahead.p == pytest.approx(p_of(0.02, variances))


def test_the_searches_of_a_study_show_the_luck_of_one() -> None:
    """Against numpy: the root of the pooled variance of differences, each the mean of a search's seeds."""
    searches = {"a": (0.25, 0.31, 0.22, 0.27, 0.29), "b": (0.05, 0.01, 0.04)}
    parts = []
    for study, differences in searches.items():
        one = compared(study, differences)
        ahead = replace(one.ahead, covers="searches and seeds")
        cell = replace(one.cell, difference=ahead)
        parts.append(replace(one, cell=cell, searches=len(differences), setup=study))
    squares = sum(np.var(differences) * len(differences) for differences in searches.values())
    assert luck_of(parts) == {5: Luck(pytest.approx(math.sqrt(squares / 6)), 6)}


def test_the_luck_of_a_search_is_added_to_the_whole_variance_of_a_study() -> None:
    seeds, images = 0.002**2, 0.01**2
    one = repeated("a", seeds, images, 3)
    ahead = replace(one.ahead, covers="seeds and images, one search")
    luck = luck_of(compared(f"s{i}", [value] * 3) for i, value in enumerate((0.25, 0.27)))
    (alone,) = pooled([replace(one, cell=replace(one.cell, difference=ahead))], luck)
    variances = [(seeds, 2.0), (images, 499.0), (luck[5].deviation ** 2, 1.0)]
    whole = sum(variance for variance, _ in variances)
    assert alone.ahead.half_width == pytest.approx(critical(variances) * math.sqrt(whole))
