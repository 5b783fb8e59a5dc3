"""Who drops out of a race, against an obvious oracle; and how often an arm as good as the others does."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from topk_platform import Racing, UserError
from topk_platform.protocol.racing import _is_behind, race


def slow_p(differences: list[float]) -> float:
    """Of all signs of the differences that are not 0, the share with a rank sum as large."""
    rest = [round(d, 12) for d in differences if round(d, 12)]
    ranks = rankdata([abs(d) for d in rest])
    result = sum(rank for rank, d in zip(ranks, rest, strict=True) if d > 0)
    sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product((0, 1), repeat=len(rest))]
    return sum(s >= result - 1e-9 for s in sums) / len(sums)


@given(st.lists(st.tuples(st.integers(80, 90), st.integers(80, 90)), min_size=5, max_size=10))
def test_the_test_is_wilcoxons_over_all_signs(pairs: list[tuple[int, int]]) -> None:
    leader, other = (tuple(pair[i] / 100 for pair in pairs) for i in (0, 1))
    differences = [ours - theirs for ours, theirs in zip(leader, other, strict=True)]
    behind = leader != other and slow_p(differences) <= 0.05
    assert _is_behind(leader, other, 0.05) == behind


def test_rounds_are_whole_and_the_last_one_stops_nothing() -> None:
    good, bad = ({seed: base + seed / 1000 for seed in range(1, 13)} for base in (0.9, 0.8))
    rule = Racing(first=5)
    assert race(rule, 4, 12, {"good": good, "bad": bad}).stopped == {"bad": 8}
    assert race(rule, 4, 8, {"good": good, "bad": bad}).stopped == {}
    few = {seed: good[seed] for seed in range(1, 8)}
    assert race(rule, 4, 12, {"good": few, "bad": bad}).until == 8
    assert race(rule, 1, 12, {"good": good, "bad": bad, "none": None}).stopped == {"bad": 5}
    assert race(rule, 1, 12, {"good": good, "none": None}).until == 12


def test_seeds_beyond_a_round_that_is_not_whole_decide_nothing() -> None:
    """So that it does not matter which of two arms was quicker."""
    draw = random.Random(0)
    results = {name: {seed: draw.random() for seed in range(1, 20)} for name in "abcd"}
    whole = race(Racing(), 1, 19, results)
    for most in range(5, 19):
        part = {
            name: {s: v for s, v in result.items() if s <= most or name == "a"}
            for name, result in results.items()
        }
        result = race(Racing(), 1, 19, part)
        assert result.stopped == {name: after for name, after in whole.stopped.items() if after <= most}


def test_how_often_one_of_equals_drops_out() -> None:
    """Two arms that are equally good, ten seeds: more often than the 5 % of a single test, as the docstring says.

    Of 300 made-up races either may drop out at each of five looks (at 5 to 9 seeds). At the first one does if the other
    is ahead in all five, with a chance of 1/16; the five together have at most 5 × 2 × 5 %. Four standard errors.
    """
    draw = random.Random(1)
    races = ({name: {s: draw.gauss(0.9, 0.01) for s in range(1, 11)} for name in "ab"} for _ in range(300))
    dropped = sum(bool(race(Racing(), 1, 10, results).stopped) for results in races) / 300
    assert 1 / 16 - 4 * (1 / 16 * 15 / 16 / 300) ** 0.5 < dropped < 0.5 + 4 * (0.25 / 300) ** 0.5
    assert dropped > 0.05


def test_a_level_that_so_few_seeds_never_reach_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"Racing.first must be larger: the least p-value of 4 pairs is 0.0625, .* 0.05"
    ):
        Racing(first=4)
    with pytest.raises(UserError, match=r"Racing.level must be in \(0, 1\)"):
        Racing(level=1.0)
