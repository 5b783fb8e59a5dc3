"""The power of tests against the noncentral t distribution and a simulation of the test itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from topk_platform.results.statistics import Precision


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
