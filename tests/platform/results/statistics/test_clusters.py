"""The variance of repeated searches, groups of images and far tails, each beside a slow and independent oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.records import Ranks, Tally
from topk_platform.results.cells import Cell, cell_of, marked
from topk_platform.results.confirmed_runs import Column, Runs, column_of, least_variance
from topk_platform.results.contrasts import combined
from topk_platform.results.statistics import critical, image_part, interval, p_of
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


def test_few_searches_that_agree_by_chance_have_the_spread_that_is_usual() -> None:
    """The variance counts as the column's median if it is below, and as it is above; freedom stays R - 1."""
    values = dict(zip(Repeats(3).seeds(3), (0.50, 0.52, 0.54), strict=True))
    own = float(np.var(list(values.values()), ddof=1))
    for least, expected in ((0.0, own), (own / 2, own), (9 * own, 9 * own)):
        result = interval(values, searches=3, least=least)
        assert result is not None
        half = stats.t.ppf(0.975, 2) * math.sqrt(expected / 3)
        assert result.half_width == pytest.approx(half)


def column(differences: float = 0.0, levels: float = 0.0, name: str = "r") -> Column:
    return Column((name, "mlp"), {"top5": levels}, {"top5": differences})


def test_the_least_variance_is_of_differences_for_differences_and_of_levels_for_levels() -> None:
    here, there = column(2.0, 5.0), column(3.0, 7.0, "s")
    a, b, c, d = (Runs(searches=3, column=of) for of in (here, here, there, there))
    assert least_variance([(1, a), (-1, b)], "top5") == 2.0
    assert least_variance([(1, a)], "top5") == 5.0
    assert least_variance([(0.5, a), (-0.5, b), (0.5, c), (-0.5, d)], "top5") == (2.0 + 3.0) / 4
    assert least_variance([(1, Runs(searches=3)), (-1, b)], "top5") == 5.0
    assert least_variance([(1, a), (-1, b)], "top1") == 0.0


def test_the_columns_medians_are_those_of_its_arms() -> None:
    """Of three losses' levels, and of the two differences to the baseline."""
    means = {"cross_entropy": [0.5, 0.6, 0.7], "focal": [0.5, 0.5, 0.8], "ldam": [0.4, 0.4, 0.4]}
    losses = [Loss(name, {"learning_rate": Float(0.1, 1)}, {"learning_rate": 0.1}) for name in means]
    arms = grid([Regime("r", "digits")], [Model("mlp")], losses, k=5, recipe=Recipe(1))
    study = Study("s", arms, topk=(5,))
    result = column_of(study, ("r", "mlp"), {name: runs(values, 3) for name, values in means.items()})
    rows = np.array(list(means.values()))
    assert result.levels["top5"] == pytest.approx(np.median(rows.var(1, ddof=1)))
    assert result.differences["top5"] == pytest.approx(np.median((rows[1:] - rows[0]).var(1, ddof=1)))


def runs(values: list[float], searches: int, blocks: int = 0) -> Runs:
    """An arm's runs; beside arms with several searches, one that was searched once or never has their ``blocks``."""
    seeds = Repeats(max(searches, 1), blocks).seeds(len(values))
    rows = {
        s: {"status": "completed", "key": f"{s}", **dict.fromkeys(METRICS, v)}
        for s, v in zip(seeds, values, strict=True)
    }
    return Runs(rows, Tally(), searches)


METRICS = [f"test.{kind}top5" for kind in ("", "macro_", "many_", "medium_", "few_")]
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
