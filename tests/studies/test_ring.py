"""The rings' definitions, and whether sawada2020's findings come out.

The findings are looked at after 300 of the 1,000 epochs, for time. Over ten seeds the differences were seen at 49, 6
and 21 standard errors from 0 in the order of the tests, so that another draw of seeds would find them too. (With two
hidden units, the paper's other small network, single runs differ by so much that ten seeds do not tell: 4.5 points with
a standard deviation of 7.1 between seeds.)
"""

from __future__ import annotations

import dataclasses

import pytest

from topk_platform import Arm, Model
from topk_platform.data import load
from topk_platform.results import estimate
from topk_platform.specs import Trial
from topk_platform.training import finish, run_trials
from topk_studies import ring

EPOCHS = 300
LOSSES = ["cross_entropy", "topk_grouping", "topk_transition"]


LINEAR = Model("linear")
SETTINGS = [
    *[({"sigma": sigma}, LINEAR) for sigma in (10, 15, 20, 25, 30)],
    *[({"sigma": 10, "distance": distance}, LINEAR) for distance in (30, 45, 60, 75, 90)],
    *[
        ({"sigma": 10, "distance": 90}, Model("mlp", {"hidden": m}, label=f"units-{m}"))
        for m in (2, 4, 8, 16, 32)
    ],
]


def test_the_study_is_the_papers_experiments() -> None:
    """Fifteen settings × three losses, ten seeds, full batches for 1,000 epochs, nothing searched."""
    study = ring()
    settings = [(arm.regime.options, arm.model) for arm in study.arms if arm.loss.label == "cross_entropy"]
    assert settings == SETTINGS
    assert [arm.loss.label for arm in study.arms] == LOSSES * 15
    assert (study.seeds, study.topk, study.show) == (10, (1, 2), ("top1", "top2"))
    for arm in study.arms:
        assert (arm.k, arm.is_searched, arm.protocol.ensemble) == (2, False, 10)
        assert (arm.recipe.epochs, arm.recipe.augmentation.on_images, arm.recipe.keep) == (1000, False, ())
        assert arm.recipe.batch_size >= 1800
        assert [e for e in range(1, 1001) if arm.recipe.evaluates(e)] == [1000]


def top2(arm: Arm) -> dict[int, float]:
    """Test top-2 accuracy by seed, all ten trained together."""
    arm = dataclasses.replace(arm, recipe=dataclasses.replace(arm.recipe, epochs=EPOCHS))
    seeds = tuple(range(1, 11))
    shared = {"number": 0, "root": 0, "values": {}, "code_version": "c", "together": seeds}
    trials = [
        Trial("s", "a", arm, (1, 2), "confirm", seed=seed, dataset_fingerprint=load(arm.regime).fingerprint, **shared)
        for seed in seeds
    ]  # fmt: skip
    records = finish(run_trials(trials))
    assert {record.status for record in records} == {"completed"}, records[0].reason
    return {record.trial.seed: record.test["top2"] for record in records if record.test}


def advantage(setting: str) -> tuple[float, bool]:
    """The transition loss's top-2 accuracy over cross-entropy's, in points; whether its 95 % interval excludes 0."""
    arms = {arm.name: arm for arm in ring().arms}
    ours, theirs = (top2(arms[f"{setting}/{loss}"]) for loss in ("topk_transition", "cross_entropy"))
    result = estimate([ours[seed] - theirs[seed] for seed in sorted(ours)])
    assert result is not None and result.n == 10
    return 100 * result.mean, result.excludes_zero


@pytest.mark.slow
def test_cross_entropy_fails_in_top2_where_a_linear_classifier_meets_minor_modes_far_away() -> None:
    """The paper's Fig. 3c at 90°: about 80 against 94 %."""
    difference, sure = advantage("distance-90/linear")
    assert sure and 10 < difference < 20


@pytest.mark.slow
def test_cross_entropy_is_behind_with_four_hidden_units_and_ahead_with_sixteen() -> None:
    """The paper's Fig. 4b: what decides is whether the model can represent the best top-1 prediction."""
    behind, sure = advantage("distance-90/units-4")
    assert sure and behind > 0
    ahead, sure = advantage("distance-90/units-16")
    assert sure and ahead < 0
