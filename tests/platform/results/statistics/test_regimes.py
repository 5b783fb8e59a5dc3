"""Losses ranked over regimes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from topk_platform.reports.tables.legend import ranked
from topk_platform.results.statistics import improvement, ranking


@given(st.integers(0, 2**32 - 1), st.integers(3, 6), st.integers(5, 12))
def test_friedmans_test_is_scipys_in_iman_and_davenports_form(seed: int, losses: int, regimes: int) -> None:
    table = np.random.default_rng(seed).integers(0, 12, (losses, regimes)).astype(float)
    result = ranking({f"loss {i}": list(row) for i, row in enumerate(table)})
    assert result is not None
    assert sum(result.mean_ranks.values()) == pytest.approx(losses * (losses + 1) / 2)
    if np.ptp(table, axis=0).max() == 0:
        assert result.p == 1
        return
    chi = stats.friedmanchisquare(*table).statistic
    if chi < regimes * (losses - 1) - 1e-6:
        f = (regimes - 1) * chi / (regimes * (losses - 1) - chi)
        assert result.p == pytest.approx(stats.f.sf(f, losses - 1, (losses - 1) * (regimes - 1)), rel=1e-6)


def test_the_critical_difference_is_demsars() -> None:
    """His example: four classifiers on 14 sets, q = 2.569 and a critical difference of 1.25."""
    values = {name: list(np.random.default_rng(i).random(14)) for i, name in enumerate("abcd")}
    result = ranking(values)
    assert result is not None
    assert result.critical == pytest.approx(2.569 * math.sqrt(4 * 5 / 6 / 14), abs=1e-3)


def test_bars_join_what_does_not_differ_and_none_lies_in_another() -> None:
    values = {f"loss {i}": [float(-i)] * 6 for i in range(6)}
    result = ranking(values)
    assert result is not None
    for bar in result.alike:
        ranks = [result.mean_ranks[name] for name in bar]
        assert max(ranks) - min(ranks) <= result.critical
    assert not any(set(a) < set(b) for a in result.alike for b in result.alike)
    assert result.p == 0


@pytest.mark.parametrize(("last", "text"), [(0.0, "Friedman's p < 0.001;"), (4.0, "Friedman's p = 0.013;")])
def test_no_probability_is_said_to_be_zero(last: float, text: str) -> None:
    """Where all regimes agree the statistic is infinite; where one does not, it is told."""
    values = {"a": [2.0] * 6, "b": [1.0] * 6, "c": [0.0] * 5 + [last]}
    table = SimpleNamespace(ranking=lambda _metric: ranking(values), across="regime")
    assert text in ranked(table, "top1")  # type: ignore[arg-type]


def test_values_that_differ_only_by_rounding_share_their_rank() -> None:
    low, high = (sum(values) / 3 for values in ((0.91, 0.77, 0.83), (0.91, 0.83, 0.77)))
    assert low != high
    result = ranking({"a": [high] * 6, "b": [low] * 6, "c": [low] * 6})
    assert result is not None and result.p == 1
    assert set(result.mean_ranks.values()) == {2.0}


def test_too_few_regimes_or_losses_are_not_ranked() -> None:
    assert ranking({"a": [1.0] * 9, "b": [2.0] * 9}) is None
    assert ranking({name: [1.0, 2.0, 3.0, 4.0] for name in "abc"}) is None
    assert ranking({}) is None


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=6)
)
def test_the_probability_of_improvement_is_mann_and_whitneys(ours: list[int], theirs: list[int]) -> None:
    pairs = [(a > b) + (a == b) / 2 for a in ours for b in theirs]
    assert improvement(ours, theirs) == pytest.approx(sum(pairs) / len(pairs))
    assert improvement(ours, theirs) + improvement(theirs, ours) == pytest.approx(1)
