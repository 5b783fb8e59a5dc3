"""What the studies of letters and of kanji promise besides: other typefaces, questions of their own, quick ones."""

from __future__ import annotations

import math

import torch

from topk_platform import PerClass
from topk_platform.data.datasets.characters import letters as letters_data
from topk_studies import kanji_classes, kanji_quick, letters_again, letters_questions, letters_quick


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


def test_the_quick_studies_take_seconds_a_training_and_that_of_kanji_is_a_part_of_the_whole() -> None:
    """Images seen in a training, which its time goes by."""
    for arm in letters_quick().arms:
        first = arm.regime.conditions[0]
        # Of a long tail from 150 down to 3.
        images = 62 * first.samples if isinstance(first, PerClass) else 2_300
        assert images * arm.recipe.epochs <= 100_000
    whole, quick = {arm.name: arm.searched(1) for arm in kanji_classes().arms}, kanji_quick()
    assert all(whole[arm.name] == arm.searched(1) for arm in quick.arms)
    for arm in quick.arms:
        assert int(arm.regime.options["classes"]) * 5 * arm.recipe.epochs <= 101_000  # type: ignore[arg-type]
    assert quick.size <= 144


def test_every_number_of_classes_takes_as_many_steps_on_as_many_images_of_a_class() -> None:
    sizes = {(int(arm.regime.options["classes"]), arm.recipe.batch_size) for arm in kanji_classes().arms}  # type: ignore[arg-type]
    steps = {(classes, math.ceil(5 * classes / batch)) for classes, batch in sizes}
    assert steps == {(62, 20), (1006, 20), (2965, 20)}
    same = {(arm.regime.conditions[0], arm.recipe.epochs) for arm in kanji_classes().arms}
    assert same == {(PerClass(5), 20)}
