"""p-values, Holm's correction and the power of tests, beside other formulas and a simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from topk_platform.results.significance import Precision, critical, holm, p_of


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


def test_a_p_value_is_where_an_interval_ends() -> None:
    for parts in ([(1.0, 4.0)], [(1.0, 2.0), (3.0, 159.0)], [(1e-4, 2.0), (5e-5, 12.0), (1e-5, 9919.0)]):
        for level in (0.5, 0.05, 0.05 / 120, 1e-9):
            end = critical(parts, 1 - level / 2) * math.sqrt(sum(v for v, _ in parts))
            assert p_of(end, parts) == pytest.approx(level, rel=1e-6)
    assert p_of(0.0, [(1.0, 4.0)]) == 1 and p_of(1.0, [(0.0, 4.0)]) == 0 and p_of(1e9, [(1e-9, 99.0)]) >= 0


def exceeded(level: float, share: float, freedom: int, ours: bool) -> float:
    """The chance that a true difference of 0 lies outside its interval, by numeric integration over both variances.

    The seeds' part has ``freedom`` degrees of freedom, the images' part 1,000.
    """
    logs = np.linspace(-25, math.log(80), 2000)
    densities = stats.chi2(freedom).pdf(np.exp(logs)) * np.exp(logs) * (logs[1] - logs[0])
    chances = np.zeros(len(logs))
    for v in stats.chi2(1000).ppf([0.1, 0.3, 0.5, 0.7, 0.9]):
        for i, u in enumerate(np.exp(logs)):
            parts = [(share * u / freedom, float(freedom)), ((1 - share) * v / 1000, 1000.0)]
            whole = sum(variance for variance, _ in parts)
            mixed = 1 / sum(variance / whole / of for variance, of in parts)
            t = critical(parts, 1 - level / 2) if ours else float(special.stdtrit(mixed, 1 - level / 2))
            chances[i] += 2 * float(special.ndtr(-t * math.sqrt(whole))) / 5
    return float(densities @ chances)


@pytest.mark.parametrize("freedom", [2, 4])
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_at_a_level_of_one_in_2400_no_more_tests_are_false_than_said(freedom: int, share: float) -> None:
    """A single number of degrees of freedom, as it was, is up to 14 times too generous there."""
    level = 0.05 / 120
    ours, before = (exceeded(level, share, freedom, of) for of in (True, False))
    assert ours < level < before


@pytest.mark.parametrize("tests", [1, 6, 120])
@pytest.mark.parametrize("seeds", [3, 5, 10, 100])
def test_for_seeds_alone_it_is_the_noncentral_t(seeds: int, tests: int) -> None:
    level = 1 - 0.025 / tests
    precision = Precision(0.25, 0.0, seeds, math.inf)
    effect = precision.detectable(level)
    quantile = stats.t.ppf(level, seeds - 1)
    assert stats.nct.sf(quantile, seeds - 1, effect / 0.5) == pytest.approx(0.8, abs=0.004)
    assert precision.power(effect, level=level) == pytest.approx(0.8, abs=1e-6)
    exact = stats.nct.sf(quantile, seeds - 1, 0.5 * effect / 0.5)
    assert precision.power(0.5 * effect, level=level) == pytest.approx(exact, abs=0.01)


def test_with_a_part_of_images_it_is_how_often_the_test_finds_the_effect() -> None:
    """400,000 studies: five standard errors of a share of 0.8 are 0.0032."""
    level, studies, generator = 1 - 0.025 / 40, 400_000, np.random.default_rng(0)
    precision = Precision(0.25, 0.25, 3, 50)
    effect = precision.detectable(level)
    means = effect + math.sqrt(0.5) * generator.standard_normal(studies)
    squares = sum(
        0.25 * generator.chisquare(freedom, studies) / freedom * stats.t.ppf(level, freedom) ** 2
        for freedom in (2, 49)
    )
    assert (means > np.sqrt(squares)).mean() == pytest.approx(0.8, abs=0.004)


def test_without_variance_every_effect_is_seen() -> None:
    precise = Precision(0.0, 0.0, 3, math.inf)
    assert precise.detectable() == 0
    assert (precise.power(0.1), precise.power(-0.1)) == (1, 0)
