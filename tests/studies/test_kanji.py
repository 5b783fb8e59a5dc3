"""The protocols that the studies on kanji promise: equal budgets, repeated searches, as many steps at any classes."""

from __future__ import annotations

import math

import pytest

from topk_platform import Arm, LabelNoise, LongTail, PerClass, Study
from topk_platform.running.preflight.arm_checks import check_study
from topk_studies import STUDIES, kanji_classes, kanji_map, kanji_quick

NAMES = [name for name in STUDIES if name.startswith("kanji")]
STUDIED = [STUDIES[name]() for name in NAMES]


def typefaces(arm: Arm) -> int:
    """Typefaces per character of an arm's regime, on average."""
    (condition,) = [c for c in arm.regime.conditions if isinstance(c, PerClass | LongTail)]
    return condition.samples if isinstance(condition, PerClass) else 6


@pytest.mark.parametrize("study", STUDIED, ids=NAMES)
def test_all_losses_of_a_regime_have_one_budget_and_repeated_searches(study: Study) -> None:
    searches = {"kanji_quick": 3, "kanji_again": 10}.get(study.name, 5)
    assert study.trials % searches == study.seeds % searches == 0
    for arm in study.arms:
        same = [a for a in study.arms if (a.regime, a.model) == (arm.regime, arm.model)]
        baseline = next(a for a in same if a.loss.label == "cross_entropy")
        assert (arm.recipe, arm.protocol, arm.metric) == (baseline.recipe, baseline.protocol, baseline.metric)
        assert arm.protocol.searches == searches and arm.is_searched
        own = set(arm.loss.space) - {"learning_rate", "weight_decay"}
        assert len(own) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_losses_models_and_recipes_fit_together_on_a_small_part(name: str) -> None:
    small = STUDIES[name]().smoke()
    assert len(check_study(small)) == len(small.arms)


def test_the_quick_study_is_a_part_of_the_whole_and_takes_seconds_a_training() -> None:
    whole, quick = {arm.name: arm.searched(1) for arm in kanji_classes().arms}, kanji_quick()
    assert all(whole[arm.name] == arm.searched(1) for arm in quick.arms)
    for arm in quick.arms:
        assert int(arm.regime.options["classes"]) * typefaces(arm) * arm.recipe.epochs <= 101_000  # type: ignore[arg-type]
    assert quick.size <= 144


def test_the_map_crosses_noise_typefaces_and_guesses() -> None:
    places = {(arm.regime.conditions[1], typefaces(arm), arm.k) for arm in kanji_map().arms}
    assert places == {(LabelNoise(p), n, k) for p in (0.0, 0.8) for n in (2, 5, 16) for k in (1, 5, 20)}
    assert len(kanji_map().arms) == 3 * len(places)
    assert all(arm.metric == f"top{arm.k}" for arm in kanji_map().arms)


def test_every_number_of_classes_takes_as_many_steps_on_as_many_images_of_a_class() -> None:
    sizes = {(int(arm.regime.options["classes"]), arm.recipe.batch_size) for arm in kanji_classes().arms}
    steps = {(classes, math.ceil(5 * classes / batch)) for classes, batch in sizes}
    assert steps == {(62, 20), (1006, 20), (2965, 20)}
    assert {(typefaces(arm), arm.recipe.epochs) for arm in kanji_classes().arms} == {(5, 20)}
