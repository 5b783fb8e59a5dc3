"""Intervals over seeds and test images: the variance's parts, what they cover, and what a table says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from topk_platform import Study
from topk_platform.records import ArmHistory, Ranks
from topk_platform.reports import to_csv, to_markdown
from topk_platform.results import Table, build_table
from topk_platform.results.confirmed_runs import Runs
from topk_platform.results.contrasts import combined
from topk_platform.results.statistics import accuracies, image_part, interval
from topk_platform.specs import Repeats


def crossed_by_hand(rows: list[list[float]]) -> float:
    """The images' part of a mean's variance by the mean squares of a two-way table, in plain loops."""
    seeds, images = len(rows), len(rows[0])
    of_seed = [sum(row) / images for row in rows]
    of_image = [sum(row[i] for row in rows) / seeds for i in range(images)]
    mean = sum(of_seed) / seeds
    images_square = seeds * sum((m - mean) ** 2 for m in of_image) / (images - 1)
    rest = sum(
        (rows[s][i] - of_seed[s] - of_image[i] + mean) ** 2 for s in range(seeds) for i in range(images)
    )
    return (images_square - rest / (seeds - 1) / (images - 1)) / (seeds * images)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(2, 12))
def test_the_images_part_is_that_of_the_mean_squares(seed: int, seeds: int, images: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 3, (seeds, images)) / 2
    part = image_part(rows)
    assert part.variance == pytest.approx(max(crossed_by_hand(rows.tolist()), 0), abs=1e-12)
    assert part.size == pytest.approx(images)


@given(st.integers(0, 2**32 - 1))
def test_classes_of_one_weight_each_add_up(seed: int) -> None:
    """A mean over classes has the sum of the classes' own parts, a quarter of each where there are two."""
    rng = np.random.default_rng(seed)
    rows, strata = rng.random((3, 9)), np.array([0, 1, 1, 0, 1, 1, 0, 1, 2])
    both = image_part(rows, strata, np.array([0.5, 0.5, 0.0]))
    own = [crossed_by_hand(rows[:, strata == c].tolist()) for c in (0, 1)]
    assert both.variance == pytest.approx(max(sum(own) / 4, 0), abs=1e-12)
    assert both.size == pytest.approx(1 / (0.25 / 3 + 0.25 / 5))


def test_a_class_of_one_image_has_the_spread_of_the_others() -> None:
    rows, strata = np.array([[1.0, 0, 1], [1, 0, 1]]), np.array([0, 0, 1])
    part = image_part(rows, strata, np.array([0.5, 0.5]))
    assert part.variance == pytest.approx(0.25 * 0.5 / 2 + 0.25 * 0.5 / 1)


def test_a_class_that_does_not_count_shows_its_spread_only_if_its_images_are_of_several_groups() -> None:
    """The third class, with weight 0 and all its images in one group, says nothing about the second."""
    rows, strata, clusters = (
        np.array([[1.0, 0, 1, 0, 1]] * 2),
        np.array([0, 0, 1, 2, 2]),
        np.array([0, 1, 2, 3, 3]),
    )
    part = image_part(rows, strata, np.array([0.5, 0.5, 0]), clusters=clusters)
    assert part.variance == pytest.approx(0.25 * 0.5 / 2 + 0.25 * 0.5 / 1)


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
    confirmed = {
        s: {"status": "completed", "test.macro_top1": float((one.greater < 1).mean())}
        for s, one in ranks.items()
    }
    result = combined([(1, Runs(confirmed, ranks=ranks))], "macro_top1", difference=False)
    assert result is not None and result.covers == "seeds"


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


def test_repeated_searches_are_the_top_level() -> None:
    """Six seeds of three searches: three numbers, the searches' means, and two degrees of freedom."""
    values = dict(zip(Repeats(3).seeds(6), (0.5, 0.6, 0.7, 0.52, 0.62, 0.72), strict=True))
    result, means = interval(values, searches=3), interval({1: 0.51, 2: 0.61, 3: 0.71})
    assert result is not None and means is not None
    assert (result.mean, result.half_width, result.n) == (
        pytest.approx(means.mean),
        pytest.approx(means.half_width),
        6,
    )
    assert result.covers == "searches and seeds"
    runs = np.random.default_rng(0).random((6, 20))
    part = image_part(runs, searches=[0, 1, 2, 0, 1, 2])
    assert part.variance == pytest.approx(max(crossed_by_hand(((runs[:3] + runs[3:]) / 2).tolist()), 0))
    assert part.single == pytest.approx(image_part(runs).single)


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


# In tables.


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


def with_ranks(
    study: Study, seeds: int, spoilt: Sequence[str] = (), images: Mapping[int, str] | None = None
) -> Table:
    """A table of two losses in a regime, made of ranks; what is spoilt has other numbers than its ranks'."""
    kept, histories = {}, {}
    for index, arm in enumerate(study.arms):
        confirm = {}
        for seed in range(1, seeds + 1):
            key = f"{index}-{seed}"
            kept[key] = ranks_of(seed, index, (images or {}).get(seed, "test"))
            tests = {f"test.{m}": oracle(kept[key], m) + (m in spoilt) * 0.01 for m in study.accuracies}
            tests = {name: None if math.isnan(value) else value for name, value in tests.items()}
            confirm[0, seed] = {"key": key, "seed": seed, "number": 0, "status": "completed", **tests}
            confirm[0, seed] |= {"versions": "{}", "reason": ""}
        histories[study.arm_id(arm)] = ArmHistory(arm, {}, confirm)
    return build_table(study, histories, ranks=lambda rows: {row["key"]: kept[row["key"]] for row in rows})


def two_losses(**changes: object) -> Study:
    from topk_platform import Loss, Model, Recipe, Regime, grid

    losses = [Loss("cross_entropy"), Loss("smooth_topk_svm")]
    arms = grid([Regime("clean", "digits")], [Model("mlp")], losses, k=3, recipe=Recipe(1))
    return Study("s", arms, topk=(1, 3), seeds=4, **changes)  # type: ignore[arg-type]


def test_a_table_of_ranks_covers_seeds_and_images_in_every_metric() -> None:
    table = with_ranks(two_losses(), 4)
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
    spoilt = with_ranks(two_losses(), 4, spoilt=["top1"])
    assert "those of 2 cells" in to_markdown(spoilt)
    assert spoilt.cells["cross_entropy", "clean", "top1"].value.covers == "seeds"  # type: ignore[union-attr]
    mixed = with_ranks(two_losses(), 4, images={4: "others"})
    assert mixed.cells["cross_entropy", "clean", "top1"].value == interval(
        {s: oracle(ranks_of(s, 0), "top1") for s in range(1, 5)}
    )
    of_seeds = with_ranks(two_losses(interval="seeds"), 4)
    assert {c.value.covers for c in of_seeds.cells.values() if c.value is not None} == {"seeds"}


def test_where_every_seed_has_images_of_its_own_students_interval_covers_both() -> None:
    table = with_ranks(two_losses(), 4, images={seed: f"drawn {seed}" for seed in range(1, 5)})
    cell = table.cells["smooth_topk_svm", "clean", "top1"]
    alone = interval({s: oracle(ranks_of(s, 1), "top1") for s in range(1, 5)})
    assert cell.value is not None and alone is not None
    assert (cell.value.half_width, cell.value.covers) == (alone.half_width, "seeds and images")


def test_what_an_interval_covers_changes_no_result() -> None:
    one, other = two_losses(), two_losses(interval="seeds")
    assert [one.arm_id(arm) for arm in one.arms] == [other.arm_id(arm) for arm in other.arms]
