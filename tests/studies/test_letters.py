"""The protocols that the studies on letters promise: equal budgets, the papers' values beside, stand-ins named so."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from topk_platform import Arm, LabelNoise, LongTail, PerClass, Study
from topk_platform.data import letters as dataset
from topk_platform.running.preflight.checks import check_study
from topk_studies import (
    STUDIES,
    letters,
    letters_capacity,
    letters_imbalance,
    letters_k,
    letters_map,
    letters_quick,
)

SEARCHED = [letters(), letters_quick(), letters_map(), letters_imbalance(), letters_k(), letters_capacity()]
NAMES = [name for name in STUDIES if name.startswith("letters")]
QUESTIONS = [f"letters_{q}" for q in ("temperature", "epsilon", "samples", "fraction", "margin", "tradeoff")]
COMMON = {
    "cross_entropy",
    "smooth_topk_svm",
    "noised_topk_hinge",
    "calibrated_topk_hinge",
    "topk_transition",
    "topk_grouping",
    "generalized_cross_entropy",
    "soft_topk_loss",
    "autkc",
}
UNEVEN = {"focal", "ldam", "noised_imbalanced_topk_hinge"}


def images(arm: Arm) -> int:
    """Training images of an arm's regime."""
    conditions = {type(condition): condition for condition in arm.regime.conditions}
    if PerClass in conditions:
        return 62 * conditions[PerClass].samples  # type: ignore[union-attr]
    if LongTail in conditions:
        ratio = conditions[LongTail].ratio  # type: ignore[union-attr]
        return sum(round(150 * ratio ** (-c / 61)) for c in range(62))
    return len(dataset().train)


def test_regimes_and_losses_are_those_of_the_question() -> None:
    result = defaultdict(set)
    for arm in letters().arms:
        result[arm.regime.name, arm.model.label].add(arm.loss.label)
    both = {"long-tail": COMMON | UNEVEN}
    assert result == {
        (regime, model): {label + end for label in both.get(regime, COMMON) for end in ("", "-papers")}
        for regime in ("clean-5", "clean-20", "clean-100", "noise-0.4", "noise-0.8", "long-tail")
        for model in ("mlp", "convnet")
        if model == "mlp" or regime in ("clean-20", "noise-0.8", "long-tail")
    }
    assert {arm.loss.name for arm in letters().arms if arm.loss.head == "cosine"} == UNEVEN - {"focal"}


@pytest.mark.parametrize("study", SEARCHED, ids=lambda study: study.name)
def test_the_budget_is_the_same_for_all(study: Study) -> None:
    seeds = 5 if study.searches == 1 else 2 * study.searches
    assert (study.trials, study.seeds, study.topk) == (15 * study.searches, seeds, (1, 2, 3, 5, 10))
    for arm in study.arms:
        assert arm.metric == f"top{arm.k}" and (arm.k == 5 or study.name == "letters_k")
        same = [a for a in study.arms if (a.regime, a.model) == (arm.regime, arm.model)]
        baseline = next(a for a in same if a.loss.label == study.baseline)
        assert (arm.recipe, arm.protocol) == (baseline.recipe, baseline.protocol)


@pytest.mark.parametrize("study", SEARCHED[:2], ids=lambda study: study.name)
def test_beside_each_searched_arm_stands_the_same_with_the_papers_values(study: Study) -> None:
    searched = {arm.name: arm for arm in study.arms if arm.is_searched}
    fixed = {arm.name: arm for arm in study.arms if not arm.is_searched}
    assert {f"{name}-papers" for name in searched} == set(fixed)
    for name, arm in searched.items():
        other = fixed[f"{name}-papers"]
        assert other.loss.fixed == {**arm.loss.fixed, **arm.loss.first}
        assert (other.recipe, other.regime, other.model) == (arm.recipe, arm.regime, arm.model)


def test_the_quick_study_is_a_part_of_the_whole() -> None:
    whole = {arm.name: arm for arm in letters().arms}
    assert all(whole[arm.name] == arm for arm in letters_quick().arms)
    assert {arm.regime.name for arm in letters_quick().arms} == {"clean-20", "noise-0.8"}


def test_the_map_has_each_noise_at_each_size() -> None:
    places = {
        (arm.regime.conditions[1].probability, arm.regime.conditions[0].samples)  # type: ignore[union-attr]
        for arm in letters_map().arms
    }
    assert places == {(p, n) for p in (0.0, 0.4, 0.8) for n in (5, 15, 50, 150)}
    assert len(letters_map().arms) == 4 * len(places)
    assert isinstance(letters_map().arms[0].regime.conditions[1], LabelNoise)


def test_the_other_axes_are_crossed_with_clean_and_very_noisy_labels() -> None:
    imbalance, by_k, capacity = letters_imbalance(), letters_k(), letters_capacity()
    assert {tuple(arm.regime.conditions) for arm in imbalance.arms} == {
        (LongTail(ratio), LabelNoise(p)) for ratio in (1, 10, 50) for p in (0.0, 0.8)
    }
    assert UNEVEN - {"focal"} < {arm.loss.name for arm in imbalance.arms}
    assert {(arm.k, arm.regime.name) for arm in by_k.arms} == {
        (k, f"noise-{p}-k-{k}") for k in (1, 3, 5, 10) for p in ("0", "0.8")
    }
    widths = {(arm.model.label, arm.model.options["hidden"]) for arm in capacity.arms}
    assert widths == {(f"mlp-{hidden}", hidden) for hidden in (32, 128, 512)}


@pytest.mark.parametrize("name", NAMES)
def test_a_training_takes_no_more_than_it_may(name: str) -> None:
    """Images seen in a training, which its time goes by; those of the fractions go up to the whole."""
    most = {"letters_map": 190_000, "letters_imbalance": 190_000, "letters_fraction": 380_000}.get(
        name, 125_000
    )
    convnet = 250_000 if name == "letters_underfit" else 90_000
    for arm in STUDIES[name]().arms:
        seen = images(arm) * arm.recipe.epochs
        assert seen <= convnet if arm.model.label == "convnet" else seen <= most, arm.name


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_stand_in_is_named_so_and_searches_nothing(name: str) -> None:
    study = STUDIES[name]()
    assert "stand-in" in (STUDIES[name].__doc__ or "") and study.description.startswith("stand-in on letters")
    assert not any(arm.is_searched for arm in study.arms)
    assert (study.seeds, {arm.protocol.ensemble for arm in study.arms}) == (10, {10})


@pytest.mark.parametrize("name", NAMES)
def test_losses_models_and_recipes_fit_together_on_a_small_part(name: str) -> None:
    small = STUDIES[name]().smoke()
    assert len(check_study(small)) == len(small.arms)


def test_their_page_counts_them_right() -> None:
    text = (Path(__file__).parents[2] / "docs" / "papers.md").read_text()
    result = {}
    for names, count in re.findall(
        r"^\| ((?:`letters\w*`(?:, )?)+) \|.*\| ([\d,]+)(?: each)? \|$", text, flags=re.M
    ):
        result |= {name: int(count.replace(",", "")) for name in re.findall(r"`(\w+)`", names)}
    assert result == {name: STUDIES[name]().size for name in NAMES}
