"""The variance of repeated searches, groups of images and far tails, each beside a slow and independent oracle."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from topk_platform.records import Ranks, Tally
from topk_platform.results.cells import Cell, cell_of, marked
from topk_platform.results.confirmed_runs import Runs
from topk_platform.results.contrasts import combined
from topk_platform.results.statistics import (
    Prior,
    critical,
    image_part,
    interval,
    moderated,
    p_of,
    pooled,
    prior_of,
)
from topk_platform.results.statistics.clusters import Groups
from topk_platform.specs import Repeats

# Groups of images.


def cr2_by_matrices(x: np.ndarray, strata: np.ndarray, weights: np.ndarray, groups: np.ndarray) -> float:
    """Bell and McCaffrey's CR2 variance of a weighted sum of class means, as a regression on dummies of the classes."""
    design = np.eye(len(weights))[strata]
    inverse = np.linalg.inv(design.T @ design)
    hat = design @ inverse @ design.T
    residuals = x - hat @ x
    row = weights @ inverse @ design.T
    total = 0.0
    for group in np.unique(groups):
        mine = groups == group
        rest = np.eye(mine.sum()) - hat[np.ix_(mine, mine)]
        values, vectors = np.linalg.eigh(rest)
        root = vectors @ np.diag([0.0 if v < 1e-9 else v**-0.5 for v in values]) @ vectors.T
        total += float(row[mine] @ root @ residuals[mine]) ** 2
    return total


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_variance_of_groups_is_cr2s(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    strata = np.repeat(np.arange(classes), 12)
    groups = np.concatenate([rng.permutation(np.arange(12) % 5) for _ in range(classes)])
    x, weights = rng.random(len(strata)), rng.dirichlet(np.ones(classes))
    result = Groups.of(strata, weights, groups).variances(x[None])[0]
    assert result == pytest.approx(cr2_by_matrices(x, strata, weights, groups))


@given(st.lists(st.integers(1, 9), min_size=3, max_size=9))
def test_the_degrees_of_freedom_of_groups_are_satterthwaites(sizes: list[int]) -> None:
    """By the matrix that makes the groups' scores of their values: tr(MMᵀ)² / tr(MMᵀMMᵀ)."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    q = np.array(sizes) / sum(sizes)
    scores = np.diag(q / np.sqrt(1 - q)) @ (np.eye(len(q)) - np.outer(np.ones(len(q)), q))
    gram = scores @ scores.T
    expected = np.trace(gram) ** 2 / np.trace(gram @ gram)
    result = Groups.of(np.zeros(len(groups), int), np.ones(1), groups)
    assert result.freedom == pytest.approx(max(expected, 1.0)) and result.known
    equal = Groups.of(np.zeros(30, int), np.ones(1), np.repeat(np.arange(10), 3))
    assert equal.freedom == pytest.approx(9)


def test_images_that_are_right_or_wrong_together_count_as_one() -> None:
    """Ten images of each of 30 typefaces, all alike: the variance is that of 30 images."""
    one = np.random.default_rng(3).random((3, 30)) < 0.8
    one[:, :4] = False
    rows = np.repeat(one, 10, axis=1).astype(float)
    grouped = image_part(rows, clusters=np.repeat(np.arange(30), 10))
    alone, naive = image_part(one.astype(float)), image_part(rows)
    assert grouped.variance == pytest.approx(alone.variance)
    assert grouped.freedom == pytest.approx(29)
    assert grouped.variance / naive.variance == pytest.approx(10, rel=0.1)  # the design effect
    assert grouped.persistence > 5 * naive.persistence


def test_images_that_are_groups_of_their_own_are_ungrouped() -> None:
    rows = np.random.default_rng(4).random((4, 40))
    assert image_part(rows, clusters=np.arange(40)).variance == pytest.approx(image_part(rows).variance)


# Far tails.


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


# Repeated searches.


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


def test_the_pool_is_the_rest_of_two_ways_where_arms_do_not_differ() -> None:
    """Its variance beside other arms is the mean square of the residuals of arms and seeds, by least squares."""
    rng = np.random.default_rng(5)
    # Rows of equal size in two columns, so that arms do not differ.
    rest = np.array([[1.0, -1, 0], [-1, 1, 0], [0, 1, -1], [0, -1, 1]])
    table = 5 + rng.random((4, 1)) + rng.random((1, 3)) + 0.1 * rest
    other = 0.1 * rest + rng.random((1, 3))
    places = list(itertools.product(range(4), range(3)))
    design = np.array(
        [[float(a == i) for i in range(4)] + [float(r == j) for j in range(1, 3)] for a, r in places]
    )
    y = np.array([table[a, r] for a, r in places])
    residuals = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    columns = {
        c: {(c, a): rows[a].tolist() for a in range(4)} for c, rows in enumerate([table, *[other] * 9])
    }
    luck = {a: of_arm for (c, a), of_arm in pooled(columns).items() if c == 0}
    assert math.isinf(luck[0].beside.weight)
    assert luck[0].beside.variance == pytest.approx(float(residuals @ residuals) / 6)
    assert luck[0].beside.freedom == 6
    assert luck[0].level.variance == pytest.approx(float(table.var(1, ddof=1).mean()))
    two = prior_of([(1.0, luck[0]), (-1.0, luck[1])])
    assert (two.variance, two.freedom) == (pytest.approx(2 * luck[0].beside.variance), pytest.approx(6))
    assert prior_of([(1.0, luck[0])]).variance == pytest.approx(luck[0].level.variance)


def by_turns(table: np.ndarray, weight: float) -> tuple[float, np.ndarray]:
    """The scale of Fisher's F by its likelihood, and what all arms share as the mean weighted by inverse variances."""
    searches, d = table.shape[1], table.shape[1] - 1
    centred = [row - row.mean() for row in table]
    shares = [1 / len(table)] * len(table)
    for _ in range(80):
        common = sum(share * row for share, row in zip(shares, centred, strict=True))
        squares = [
            sum((row - common) ** 2) / (d * (1 - share)) for share, row in zip(shares, centred, strict=True)
        ]

        def minus(log: float, squares: list[float] = squares) -> float:
            return -sum(stats.f.logpdf(s / math.exp(log), d, weight) - log for s in squares)

        scale = math.exp(optimize.minimize_scalar(minus, (-3.0, 0.0), options={"xtol": 1e-12}).x)
        inverse = [(d + weight) / (d * s + weight * scale) for s in squares]
        shares = [one / sum(inverse) for one in inverse]
    return scale, common[:searches]


@pytest.mark.slow
@pytest.mark.parametrize(("searches", "odd"), [(3, 1.0), (3, 8.0), (5, 30.0)])
def test_the_pools_variance_is_the_most_likely_scale(searches: int, odd: float) -> None:
    rng = np.random.default_rng(6)
    scales = np.exp(0.5 * rng.standard_normal((6, 1)))
    scales[-1] *= odd
    table = scales * rng.standard_normal((6, searches)) + rng.standard_normal((1, searches))
    luck = pooled({"c": {a: table[a].tolist() for a in range(6)}})[0]
    assert 0 < luck.beside.weight < 100
    variance, common = by_turns(table, luck.beside.weight)
    assert luck.beside.variance == pytest.approx(variance, rel=1e-5)
    assert luck.level.variance == pytest.approx(common.var(ddof=1) + variance * 5 / 6, rel=1e-5)


@given(st.floats(10, 1e6), st.integers(0, 2**32 - 1))
def test_an_arm_with_far_more_luck_hardly_moves_the_pool(factor: float, seed: int) -> None:
    """However large it is: a plain mean square grows with its square."""
    table = np.random.default_rng(seed).standard_normal((7, 4))
    far, farther = table.copy(), table.copy()
    far[-1] *= 1000
    farther[-1] *= 1000 * factor
    first, second = (
        pooled({"c": {a: rows[a].tolist() for a in range(7)}})[0].beside for rows in (far, farther)
    )
    assert second.variance < 4 * first.variance and second.variance < 20
    assert second.weight <= first.weight * 1.01


@pytest.mark.parametrize("real", [4.0, 16.0, math.inf])
def test_the_more_arms_differ_in_their_luck_the_less_the_pool_weighs(real: float) -> None:
    """Variances of a scaled inverse chi square with so many degrees of freedom, which the weight estimates."""
    rng = np.random.default_rng(1)
    scales = np.ones((300, 8)) if math.isinf(real) else np.sqrt(real / rng.chisquare(real, (300, 8)))
    columns = {
        c: {(c, a): (scales[c, a] * rng.standard_normal(5)).tolist() for a in range(8)} for c in range(300)
    }
    weight = pooled(columns)[0, 0].beside.weight
    assert weight > 100 if math.isinf(real) else 0.6 * real < weight < 1.6 * real


def test_one_column_of_few_arms_borrows_little_and_none_borrows_nothing() -> None:
    rng = np.random.default_rng(2)
    few = pooled({"c": {a: rng.standard_normal(3).tolist() for a in range(4)}})
    assert few[0].beside.freedom < 6
    assert moderated(1.0, 2, few[0].beside)[1] < 7
    assert pooled({"c": {"alone": [0.1, 0.2, 0.3]}}) == {}
    pair = pooled({"c": {"a": [0.1, 0.2, 0.4], "b": [0.3, 0.1, 0.2]}})
    assert pair["a"].beside.weight == 0  # two arms do not show how arms differ
    assert moderated(4.0, 2, pair["a"].beside) == (4.0, 2.0)


@pytest.mark.filterwarnings("error")
@given(
    st.lists(st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 1e6]), min_size=2, max_size=7),
    st.integers(2, 5),
    st.integers(0, 99),
)
def test_every_table_has_a_pool_of_finite_numbers(scales: list[float], searches: int, seed: int) -> None:
    """Also where an arm has no luck at all."""
    rng = np.random.default_rng(seed)
    columns = {
        c: {(c, a): (scale * rng.standard_normal(searches)).tolist() for a, scale in enumerate(scales)}
        for c in range(3)
    }
    for luck in pooled(columns).values():
        for prior in (luck.level, luck.beside):
            assert math.isfinite(prior.variance) and prior.variance >= 0
            assert math.isfinite(prior.freedom) and prior.freedom > 0 and prior.weight >= 0


@given(st.floats(0, 10), st.integers(1, 9), st.floats(0, 10), st.floats(1, 200), st.floats(0, 1e6))
def test_the_pool_never_lowers_a_variance_and_never_adds_more_freedom_than_it_is_worth(
    own: float, freedom: int, variance: float, of_pool: float, weight: float
) -> None:
    result, degrees = moderated(own, freedom, Prior(variance, of_pool, weight))
    assert result >= own
    assert freedom <= degrees <= max(freedom, weight) * (1 + 1e-9)


def runs(values: list[float], searches: int, luck: object = None, blocks: int = 0) -> Runs:
    """An arm's runs; beside arms with several searches, one that was searched once or never has their ``blocks``."""
    seeds = Repeats(max(searches, 1), blocks).seeds(len(values))
    rows = {
        s: {"status": "completed", "key": f"{s}", "test.top5": v} for s, v in zip(seeds, values, strict=True)
    }
    return Runs(rows, Tally(), searches, luck={"top5": luck} if luck else {})  # type: ignore[dict-item]


OURS, THEIRS = [0.80, 0.84, 0.79, 0.81, 0.83, 0.78], [0.75, 0.76, 0.77, 0.74, 0.77, 0.76]


@pytest.mark.parametrize(
    ("ours", "theirs", "covers"),
    [
        (0, 0, "seeds"),
        (1, 1, "seeds, one search"),
        (1, 0, "seeds, one search"),
        (0, 1, "seeds, one search"),
        (3, 1, "seeds, one search"),
        (3, 0, "searches and seeds"),
        (3, 3, "searches and seeds"),
        (3, 2, "searches and seeds"),
    ],
)
def test_what_a_difference_covers_is_decided_by_how_often_both_were_searched(
    ours: int, theirs: int, covers: str
) -> None:
    cell = cell_of(runs(OURS, ours, blocks=3), runs(THEIRS, theirs, blocks=3), "top5")
    assert cell.difference is not None and cell.difference.covers == covers
    result = marked({("a", "r", "top5"): (cell, Tally(completed=6))})["a", "r", "top5"]
    assert (result.p_holm is None) == ("one search" in covers)
    assert result.detectable is not None


def test_searches_of_both_arms_are_paired_by_their_seeds() -> None:
    """Seeds 1 and 2 train what the first search chose, 1000001 and 1000002 the second's, and so on."""
    gaps = np.subtract(OURS, THEIRS)
    result = combined([(1, runs(OURS, 3)), (-1, runs(THEIRS, 3))], "top5")
    expected = stats.ttest_1samp([(gaps[i] + gaps[i + 3]) / 2 for i in range(3)], 0)
    assert result is not None and result.p == pytest.approx(float(expected.pvalue))


def test_an_arm_of_whose_searches_one_alone_has_results_counts_as_searched_once() -> None:
    ours = runs(OURS, 3)
    only = {seed: ours.confirmations[seed] for seed in Repeats(3).seeds_of(0, 6)}
    result = combined([(1, Runs(only, Tally(), 3))], "top5", difference=False)
    assert result is not None and result.once


# What could have been seen.


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


def test_an_equivalent_cell_is_marked_so_and_a_lost_seed_takes_that_away() -> None:
    cell = cell_of(
        runs([v + g for v, g in zip(THEIRS, (0.001, -0.001, 0.002, 0, 0.001, -0.002), strict=True)], 0),
        runs(THEIRS, 0),
        "top5",
    )
    key = ("a", "r", "top5")

    def alike(theirs: Tally, tolerance: float) -> Cell:
        return marked({key: (cell, theirs)}, tolerance)[key]

    assert alike(Tally(completed=6), 0.01).equivalent
    assert not alike(Tally(completed=6), 0.0).equivalent and not alike(Tally(completed=6), 0.001).equivalent
    assert not alike(Tally(completed=6, diverged=1), 0.01).equivalent


# In a table.


def ranks(seed: int, groups: bool) -> Ranks:
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(12), 5)
    greater, none = np.where(rng.random(60) + 0.05 * (cluster % 4) < 0.85, 0, 4), np.zeros(60, int)
    return Ranks(greater, none, none, none, "i", cluster if groups else None, "typefaces" if groups else "")


def test_a_table_is_over_typefaces_where_images_have_them() -> None:
    for groups in (False, True):
        kept = {seed: ranks(seed, groups) for seed in range(1, 5)}
        rows = {
            s: {"status": "completed", "key": f"{s}", "test.top3": float((r.greater < 3).mean())}
            for s, r in kept.items()
        }
        arm = Runs(rows, ranks=kept)
        result = combined([(1, arm)], "top3", difference=False)
        assert result is not None and result.precision is not None and result.covers == "seeds and images"
        assert arm.tested == ((12, "typefaces") if groups else (60, "test images"))
        assert result.precision.groups == pytest.approx(11 if groups else 59)
