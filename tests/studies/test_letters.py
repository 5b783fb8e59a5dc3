"""The protocols that the studies on letters promise: equal budgets, the papers' values beside, stand-ins named so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from topk_platform import Arm, LabelNoise, LongTail, PerClass, Study
from topk_platform.data.datasets.characters import letters as letters_data
from topk_platform.running.preflight.arm_checks import check_study
from topk_studies import STUDIES, letters, letters_again, letters_map, letters_questions, letters_quick

SEARCHED = {letters: (20, 2), letters_map: (20, 2), letters_again: (15, 5), letters_quick: (8, 4)}
"""Trials and seeds of each search."""

NAMES = [name for name in STUDIES if name.startswith("letters")]


def images(arm: Arm) -> int:
    """Training images of an arm's regime."""
    conditions = {type(condition): condition for condition in arm.regime.conditions}
    if PerClass in conditions:
        return 62 * conditions[PerClass].samples  # type: ignore[union-attr]
    ratio = conditions[LongTail].ratio  # type: ignore[union-attr]
    return sum(round(150 * ratio ** (-c / 61)) for c in range(62))


def test_regimes_are_those_of_the_question() -> None:
    assert {arm.regime.name: arm.regime.conditions for arm in letters().arms} == {
        "clean-5": (PerClass(5),),
        "clean-20": (PerClass(20),),
        "clean-100": (PerClass(100),),
        "noise-0.4": (PerClass(50), LabelNoise(0.4)),
        "noise-0.8": (PerClass(50), LabelNoise(0.8)),
        "noise-0.8-images-5": (PerClass(5), LabelNoise(0.8)),
        "long-tail": (LongTail(50),),
    }
    cosine = {arm.loss.name for arm in letters().arms if arm.loss.head == "cosine"}
    assert cosine == {"ldam", "noised_imbalanced_topk_hinge"}


@pytest.mark.parametrize(("define", "budget"), SEARCHED.items())
def test_the_budget_is_the_same_for_all(define: Callable[[], Study], budget: tuple[int, int]) -> None:
    study = define()
    trials, seeds = (count * study.searches for count in budget)
    assert (study.trials, study.seeds, study.topk) == (trials, seeds, (1, 2, 3, 5, 10))
    assert study.searches >= 5
    for arm in study.arms:
        assert (arm.metric, arm.k) == ("top5", 5)
        same = [a for a in study.arms if (a.regime, a.model) == (arm.regime, arm.model)]
        baseline = next(a for a in same if a.loss.label == study.baseline)
        if arm.recipe.average is None:  # a network with averaged weights trains alone
            assert (arm.recipe, arm.protocol) == (baseline.recipe, baseline.protocol)


def test_the_map_has_each_noise_at_each_size() -> None:
    places = {
        (arm.regime.conditions[1].probability, arm.regime.conditions[0].samples)  # type: ignore[union-attr]
        for arm in letters_map().arms
    }
    assert places == {(p, n) for p in (0.0, 0.4, 0.8) for n in (5, 15, 50, 150)}
    assert len(letters_map().arms) == 4 * len(places)
    assert isinstance(letters_map().arms[0].regime.conditions[1], LabelNoise)


def test_the_question_asked_again_is_asked_of_typefaces_that_no_network_was_trained_on() -> None:
    regimes = {arm.regime.name: arm.regime for arm in letters_again().arms}
    assert all(regime.options["exchanged"] for regime in regimes.values())
    ours, theirs = letters_data(exchanged=True), letters_data()
    assert torch.equal(ours.train.inputs, theirs.test.inputs)
    assert torch.equal(ours.test.inputs, theirs.train.inputs)
    drawn = {name: regime.options.get("superclasses", True) for name, regime in regimes.items()}
    assert {name for name, alike in drawn.items() if not alike} == {"all-images-5", "all-images-50"}


def test_each_claim_asked_again_is_one_contrast_over_its_regimes() -> None:
    for claim in letters_again().claims:
        (contrast,) = claim.contrasts
        assert sorted(set(contrast.weights.values())) == [-0.5, 0.5]
        assert sum(contrast.weights.values()) == 0
        assert len({name.rpartition("/")[0] for name in contrast.weights}) == 2


def test_a_question_has_a_regime_claims_of_its_own_and_a_search_only_where_it_asks_for_one() -> None:
    study = letters_questions()
    asked = {arm.regime.name for arm in study.arms}
    assert asked == {"temperature", "epsilon", "samples", "underfit", "convolutions"}
    assert {arm.regime.name for arm in study.arms if arm.is_searched} == {"convolutions"}
    for claim in study.claims:
        regimes = {name.partition("/")[0] for name in claim.arms}
        assert len(regimes) == 1
        assert claim.stand_in == (regimes < {"temperature", "epsilon", "samples"})


@pytest.mark.parametrize("name", NAMES)
def test_a_training_takes_no_more_than_it_may(name: str) -> None:
    """Images seen in a training, which its time goes by."""
    for arm in STUDIES[name]().arms:
        seen = images(arm) * arm.recipe.epochs
        assert seen <= (250_000 if arm.model.label == "convnet" or name == "letters_map" else 125_000), (
            arm.name
        )


@pytest.mark.parametrize("name", NAMES)
def test_losses_models_and_recipes_fit_together_on_a_small_part(name: str) -> None:
    small = STUDIES[name]().smoke()
    assert len(check_study(small)) == len(small.arms)
