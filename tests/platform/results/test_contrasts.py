"""Weighted sums of arms: pairs, searches, columns, test images, and what a table says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from made_histories import make_history, make_runs
from made_studies import searched, small_study
from scipy import stats

from topk_platform.protocol import Tally
from topk_platform.records.per_image import Ranks
from topk_platform.reports.result_tables import to_markdown
from topk_platform.reports.table_data import to_csv
from topk_platform.results import Table, build_table
from topk_platform.results.cells import cell_of, marked
from topk_platform.results.contrasts import accuracies, combined
from topk_platform.results.images import image_part
from topk_platform.results.intervals import interval
from topk_platform.results.runs import Column, Runs, column_of, least_variance
from topk_platform.specs import Repeats


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
    study = small_study(*map(searched, means), k=5, topk=(5,))
    result = column_of(study, ("r", "mlp"), {name: runs(values, 3) for name, values in means.items()})
    rows = np.array(list(means.values()))
    assert result.levels["top5"] == pytest.approx(np.median(rows.var(1, ddof=1)))
    assert result.differences["top5"] == pytest.approx(np.median((rows[1:] - rows[0]).var(1, ddof=1)))


def runs(values: list[float], searches: int, blocks: int = 0) -> Runs:
    """An arm's runs; beside arms with several searches, one that was searched once or never has their ``blocks``."""
    seeds = Repeats(max(searches, 1), blocks).seeds(len(values))
    return make_runs(dict(zip(seeds, values, strict=True)), searches, metrics=METRICS)


METRICS = [f"{kind}top5" for kind in ("", "macro_", "many_", "medium_", "few_")]
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


@pytest.mark.parametrize("images", [1, 3])
def test_classes_of_a_single_image_or_group_do_not_show_how_images_differ(images: int) -> None:
    """Their images' part is unknown, not 0: an interval with 0 would exclude the truth in most studies."""
    label = np.repeat(np.arange(20), images)
    clusters = None if images == 1 else label
    rows = np.random.default_rng(1).integers(0, 2, (4, len(label))).astype(float)
    assert not image_part(rows, label, np.full(20, 1 / 20), clusters=clusters).known
    ranks = {
        s: Ranks(row.astype(int), 0 * label, label, label, "test", clusters) for s, row in enumerate(rows, 1)
    }
    values = {s: float((of_seed.greater < 1).mean()) for s, of_seed in ranks.items()}
    arm = make_runs(values, metrics=("macro_top1",), ranks=ranks)
    result = combined([(1, arm)], "macro_top1", difference=False)
    assert result is not None and result.covers == "seeds"


def ranks_of(seed: int, arm: int, images: str = "test") -> Ranks:
    rng = np.random.default_rng([seed, arm])
    label = np.repeat(np.arange(10), 6)
    group = np.where(label < 5, 1, 3)
    return Ranks(rng.integers(0, 4, 60), rng.integers(0, 2, 60) * 2, label, group, images)


def oracle(ranks: Ranks, metric: str) -> float:
    """A metric of one run, image by image."""
    kind, _, k = metric.rpartition("top")
    credit = [min(max((int(k) - g) / (t + 1), 0), 1) for g, t in zip(ranks.greater, ranks.tied, strict=True)]
    if not kind:
        return sum(credit) / 60
    counts = {"macro_": range(10), "many_": range(5), "medium_": range(0), "few_": range(5, 10)}[kind]
    means = [np.mean([c for c, y in zip(credit, ranks.label, strict=True) if y == label]) for label in counts]
    return float(np.mean(means)) if means else math.nan


def with_ranks(spoilt: str = "", images: Mapping[int, str] | None = None, **changes: Any) -> Table:
    """A table of two losses in a regime, made of ranks; a spoilt metric has other numbers than its ranks'."""
    losses, kept, histories = ("cross_entropy", "smooth_topk_svm"), {}, {}
    study = small_study(*losses, regimes=["clean"], seeds=4, **changes)
    for index, arm in enumerate(study.arms):
        ranks = [ranks_of(seed, index, (images or {}).get(seed, "test")) for seed in range(1, 5)]
        tests = [{m: oracle(r, m) + (m == spoilt) * 0.01 for m in study.accuracies} for r in ranks]
        known = [{name: None if math.isnan(v) else v for name, v in of_seed.items()} for of_seed in tests]
        histories[study.arm_id(arm)] = made = make_history(study, arm, known)
        kept |= {row["key"]: r for row, r in zip(made.confirm.values(), ranks, strict=True)}
    return build_table(study, histories, ranks=lambda rows: {row["key"]: kept[row["key"]] for row in rows})


def test_a_table_of_ranks_covers_seeds_and_images_in_every_metric() -> None:
    table = with_ranks()
    for metric in ("top1", "top3", "macro_top1", "macro_top3", "many_top3", "few_top1"):
        cell = table.cells["smooth_topk_svm", "clean", metric]
        assert cell.value is not None and cell.difference is not None
        assert (cell.value.covers, cell.difference.covers) == ("seeds and images",) * 2
        alone = interval({s: oracle(ranks_of(s, 1), metric) for s in range(1, 5)})
        assert alone is not None and cell.value.mean == pytest.approx(alone.mean)
    result = accuracies({1: ranks_of(1, 0), 2: ranks_of(2, 0)}, "few_top3")
    assert result is not None and result[2].tolist() == [0] * 5 + [0.2] * 5
    assert "seeds and images" in to_csv(table)


def test_what_the_ranks_do_not_support_is_said() -> None:
    """Numbers of other weights than the ranks', or of other images, fall back to Student's interval over seeds."""
    spoilt = with_ranks(spoilt="top1")
    assert to_markdown(spoilt).count("| seeds |") == 2
    assert spoilt.cells["cross_entropy", "clean", "top1"].value.covers == "seeds"  # type: ignore[union-attr]
    mixed = with_ranks(images={4: "others"})
    assert mixed.cells["cross_entropy", "clean", "top1"].value == interval(
        {s: oracle(ranks_of(s, 0), "top1") for s in range(1, 5)}
    )
    of_seeds = with_ranks(interval="seeds")
    assert {c.value.covers for c in of_seeds.cells.values() if c.value is not None} == {"seeds"}


def test_where_every_seed_has_images_of_its_own_students_interval_covers_both() -> None:
    table = with_ranks(images={seed: f"drawn {seed}" for seed in range(1, 5)})
    cell = table.cells["smooth_topk_svm", "clean", "top1"]
    alone = interval({s: oracle(ranks_of(s, 1), "top1") for s in range(1, 5)})
    assert cell.value is not None and alone is not None
    assert (cell.value.half_width, cell.value.covers) == (alone.half_width, "seeds and images")


def ranks(seed: int, groups: bool) -> Ranks:
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(12), 5)
    greater, none = np.where(rng.random(60) + 0.05 * (cluster % 4) < 0.85, 0, 4), np.zeros(60, int)
    return Ranks(greater, none, none, none, "i", cluster if groups else None, "typefaces" if groups else "")


def test_a_table_is_over_typefaces_where_images_have_them() -> None:
    for groups in (False, True):
        kept = {seed: ranks(seed, groups) for seed in range(1, 5)}
        arm = make_runs({s: float((r.greater < 3).mean()) for s, r in kept.items()}, ranks=kept)
        result = combined([(1, arm)], "top3", difference=False)
        assert result is not None and result.precision is not None and result.covers == "seeds and images"
        assert arm.test_images == ((12, "typefaces") if groups else (60, "test images"))
        assert result.precision.groups == pytest.approx(11 if groups else 59)


# Over regimes.


def of_regime(images: str, random: int, searches: int = 3) -> Runs:
    """Six runs of three searches on 400 images, whose accuracy is that of their ranks."""
    rng, kept = np.random.default_rng(random), {}
    none, label, ease = np.zeros(400, int), np.arange(400) % 4, rng.choice([0.1, 0.95], 400)
    for seed in Repeats(searches).seeds(6):
        kept[seed] = Ranks(np.where(rng.random(400) < ease, 0, 9), none, label, none, images)
    values = {seed: float((r.greater < 5).mean()) for seed, r in kept.items()}
    return make_runs(values, searches, metrics=("top5",), ranks=kept)


@pytest.mark.parametrize("images", ["test", "others"])
def test_an_average_over_regimes_has_a_row_for_each_search_and_shared_images_once(images: str) -> None:
    """Each row by hand; test images that differ are taken as fully correlated: their standard errors add up."""
    arms = [of_regime("test", 1), of_regime("test", 2)]
    arms += [of_regime(images, 3), of_regime(images, 4)]
    weights = [0.5, -0.5, 0.5, -0.5]
    result = combined(list(zip(weights, arms, strict=True)), "top5")
    seeds = Repeats(3).seeds_of
    rows = [
        np.mean(
            [sum(w * a.values("top5")[s] for w, a in zip(weights, arms, strict=True)) for s in seeds(r, 6)]
        )
        for r in range(3)
    ]
    assert result is not None and result.precision is not None
    assert (result.mean, result.precision.rows) == (pytest.approx(np.mean(rows)), 3)
    assert result.precision.by_seeds == pytest.approx(np.var(rows, ddof=1) / 3)

    def part(chosen: range) -> float:
        ordered = sorted(Repeats(3).seeds(6))
        rights = sum(weights[i] * np.stack([arms[i].ranks[s].greater < 5 for s in ordered]) for i in chosen)
        known = image_part(np.asarray(rights), searches=[s // 1_000_000 for s in ordered])
        return known.variance + known.persistence / known.size**2

    apart = (math.sqrt(part(range(2))) + math.sqrt(part(range(2, 4)))) ** 2
    expected = part(range(4)) if images == "test" else apart
    assert result.precision.by_images == pytest.approx(expected, rel=0.05 if images == "others" else 1e-9)
    assert part(range(4)) < apart
