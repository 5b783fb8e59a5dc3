"""Intervals over searches, seeds and test images: what they are made of, and how often they cover the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from topk_platform.results.images import image_part
from topk_platform.results.intervals import interval
from topk_platform.specs import Repeats


def by_likelihood(values: np.ndarray) -> float:
    """The variance of the mean of searches by seeds, ``(R, S)``, by the restricted likelihood, numerically."""
    searches, seeds = values.shape
    block = np.kron(np.eye(searches), np.ones((seeds, seeds)))
    y, ones = values.ravel(), np.ones(values.size)

    def minus(logs: np.ndarray) -> float:
        covariance = math.exp(logs[0]) * block + math.exp(logs[1]) * np.eye(values.size)
        inverse = np.linalg.inv(covariance)
        weight = ones @ inverse @ ones
        residuals = y - (ones @ inverse @ y) / weight
        whole = np.linalg.slogdet(covariance)[1] + math.log(weight) + residuals @ inverse @ residuals
        return float(whole)

    result = optimize.minimize(
        minus, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    searched, seed = np.exp(result.x)
    return float(searched / searches + seed / values.size)


def test_the_variance_of_repeated_searches_is_that_of_the_restricted_likelihood() -> None:
    rng = np.random.default_rng(8)
    values = 5 + 2 * rng.standard_normal((4, 1)) + rng.standard_normal((4, 3))
    of_seed = dict(zip(Repeats(4).seeds(12), values.T.ravel().tolist(), strict=True))
    result = interval(of_seed, searches=4)
    assert result is not None and result.precision is not None
    assert result.precision.by_seeds == pytest.approx(by_likelihood(values), rel=1e-4)
    assert result.covers == "searches and seeds"


def test_few_searches_that_agree_by_chance_have_the_spread_that_is_usual() -> None:
    """The variance counts as the column's median if it is below, and as it is above; freedom stays R - 1."""
    values = dict(zip(Repeats(3).seeds(3), (0.50, 0.52, 0.54), strict=True))
    own = float(np.var(list(values.values()), ddof=1))
    for least, expected in ((0.0, own), (own / 2, own), (9 * own, 9 * own)):
        result = interval(values, searches=3, least=least)
        assert result is not None
        half = stats.t.ppf(0.975, 2) * math.sqrt(expected / 3)
        assert result.half_width == pytest.approx(half)


def test_without_seeds_that_differ_it_is_wilsons_interval() -> None:
    """Three seeds with the same images wrong are one: then the interval is that of 100 images, by Wilson's formula."""
    right = np.ones((3, 100))
    right[:, :7] = 0
    result = interval(dict.fromkeys((1, 2, 3), 0.93), image_part(right))
    assert result is not None
    t, p, n = float(special.stdtrit(99, 0.975)), 0.93, 100
    middle, half = p + t**2 / 2 / n, t * math.sqrt(p * (1 - p) / n + t**2 / 4 / n**2)
    ends = (middle - half) / (1 + t**2 / n), (middle + half) / (1 + t**2 / n)
    assert (result.low, result.high) == pytest.approx(ends, rel=2e-3)  # s² has n - 1 below it
    assert result.covers == "seeds and images" and (result.low + result.high) / 2 < result.mean


def test_where_seeds_differ_much_more_than_images_explain_it_is_students() -> None:
    rows = np.repeat([[0.2], [0.5], [0.9]], 10_000, axis=1)
    values = {1: 0.2, 2: 0.5, 3: 0.9}
    for difference in (False, True):
        ours, plain = interval(values, image_part(rows), difference=difference), interval(values)
        assert ours is not None and plain is not None
        assert ours.half_width == pytest.approx(min(plain.half_width, ours.high - ours.mean), rel=0.2)
        assert ours.p == pytest.approx(plain.p, rel=1e-2)


def test_all_right_is_no_certainty() -> None:
    """No wrong image among 360: the upper 95 % limit of the errors is some 3.8 of them by Wilson's interval."""
    result = interval(dict.fromkeys((1, 2, 3), 1.0), image_part(np.ones((3, 360))))
    assert result is not None and result.high == 1.0
    assert 360 * (1 - result.low) == pytest.approx(3.84, abs=0.1)
    same = interval(dict.fromkeys((1, 2, 3), 0.0), image_part(np.zeros((3, 360))), difference=True)
    assert same is not None and 0 < same.half_width < 0.01 and not same.excludes_zero


@given(st.integers(0, 2**32 - 1), st.integers(3, 6), st.booleans())
def test_an_interval_and_its_p_value_say_the_same(seed: int, seeds: int, difference: bool) -> None:
    rows = np.random.default_rng(seed).integers(-1, 2, (seeds, 40)).astype(float)
    part = image_part(rows) if difference else None
    result = interval({s: float(m) for s, m in enumerate(rows.mean(1))}, part, difference=difference)
    assert result is not None
    assert (result.p < 0.05) == (not result.low <= 0 <= result.high)


# Made-up studies of known truth: an image's score is what all networks make of it, a seed's luck and chance.

IMAGES_SD, STUDIES = 2.0, 1500


def covered(seeds: int, seeds_sd: float, accuracy: float, difference: float | None, random: int) -> float:
    """How many of 1,500 studies of 360 images have the truth in their interval."""
    rng, result = np.random.default_rng(random), 0
    spread = 1 + seeds_sd**2 + IMAGES_SD**2

    def right(level: float, image: np.ndarray, spread: float) -> np.ndarray:
        seed = rng.standard_normal((seeds, 1)) * seeds_sd
        score = special.ndtri(level) * math.sqrt(spread) + image + seed + rng.standard_normal((seeds, 360))
        return (score > 0).astype(float)

    for _ in range(STUDIES):
        image, truth = rng.standard_normal(360) * IMAGES_SD, accuracy
        rows = right(accuracy, image, spread)
        if difference is not None:
            other = image + rng.standard_normal(360) * IMAGES_SD / 2
            rows, truth = right(accuracy + difference, other, spread + IMAGES_SD**2 / 4) - rows, difference
        values = {seed: float(mean) for seed, mean in enumerate(rows.mean(1), 1)}
        estimate = interval(values, image_part(rows), difference=difference is not None)
        assert estimate is not None
        result += estimate.low <= truth <= estimate.high
    return result / STUDIES


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize(
    ("seeds_sd", "accuracy", "difference"), [(0.05, 0.7, None), (0.3, 0.95, None), (0.2, 0.9, 0.02)]
)
def test_the_truth_is_covered_as_often_as_said(
    seeds: int, seeds_sd: float, accuracy: float, difference: float | None
) -> None:
    """95 % of studies, give or take the method's 1.5 points and four standard errors of 1,500 studies (2.3 points)."""
    result = covered(seeds, seeds_sd, accuracy, difference, random=11)
    assert abs(result - 0.95) < 0.015 + 4 * math.sqrt(0.95 * 0.05 / STUDIES)


def test_close_to_all_right_it_is_covered_at_least_so_often() -> None:
    """1.8 wrong images in 360: no interval can be exact, this one errs on the safe side; Student's covers 80 %."""
    assert covered(3, 0.1, 0.995, None, random=12) > 0.95 - 4 * math.sqrt(0.95 * 0.05 / STUDIES)


def test_equivalence_is_two_one_sided_tests() -> None:
    values = [0.002, -0.001, 0.003, 0.001, -0.002]
    result = interval(dict(enumerate(values, 1)))
    assert result is not None
    tests = [
        stats.ttest_1samp(values, -0.01, alternative="greater").pvalue,
        stats.ttest_1samp(values, 0.01, alternative="less").pvalue,
    ]
    assert result.within(0.01) == pytest.approx(max(tests), rel=1e-6)
    assert result.within(0.0001) == 1 or result.within(0.0001) > 0.5
