"""What a network or its images cannot have of a recipe is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from topk_platform import (
    Arm,
    Augmentation,
    ConfusionNoise,
    Float,
    LogitAdjustment,
    Loss,
    Model,
    RandAugment,
    Recipe,
    Regime,
    RetrainedClassifier,
    Study,
    TauNormalised,
    UserError,
)
from topk_platform.errors import MissingDataError
from topk_platform.running.preflight.checks import check_study


def checked(recipe: dict[str, Any], loss: Loss | None = None, model: str = "mlp", **regime: Any) -> None:
    arm = Arm(
        Regime("r", "digits", **regime), Model(model), loss or Loss("cross_entropy"), 3, Recipe(4, **recipe)
    )
    check_study(Study("s", [arm], topk=(3,), trials=1, seeds=1))


DEPTH = Loss("cross_entropy", {"stochastic_depth": Float(0, 0.5)}, {"stochastic_depth": 0.0})
TAU = Loss("cross_entropy", {"after_tau": Float(0, 2)}, {"after_tau": 1.0})


@pytest.mark.parametrize(
    ("recipe", "loss", "model", "message"),
    [
        (
            {"augmentation": Augmentation(policy=RandAugment())},
            None,
            "mlp",
            "for uint8 images of 1 or 3 channels",
        ),
        ({"stochastic_depth": 0.1}, None, "mlp", "arm r/mlp/.* needs a network with residual blocks"),
        ({}, DEPTH, "mlp", "needs a network with residual blocks"),
        ({"after": LogitAdjustment()}, None, "linear", "needs a last layer with a bias"),
        ({"after": TauNormalised()}, Loss("ldam", head="cosine"), "mlp", "whose last layer is linear"),
        ({}, TAU, "mlp", "after_tau is searched or fixed, but the recipe has no part with it"),
    ],
)
def test_what_cannot_be_is_refused(
    recipe: dict[str, Any], loss: Loss | None, model: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        checked(recipe, loss, model)


def test_what_can_be_is_not() -> None:
    checked({"after": LogitAdjustment()}, TAU)
    checked({"after": RetrainedClassifier(2)})


def test_a_file_that_is_not_there_is_missed_before_anything_starts() -> None:
    with pytest.raises(MissingDataError, match=r"no\.csv, which a condition reads, does not exist"):
        checked({}, conditions=(ConfusionNoise("no.csv"),))


def test_a_smoke_run_of_a_retrained_classifier_has_both_stages() -> None:
    arm = Arm(
        Regime("r", "digits"),
        Model("mlp"),
        Loss("cross_entropy"),
        3,
        Recipe(40, after=RetrainedClassifier(10)),
    )
    small = Study("s", [arm], topk=(3,), trials=1, seeds=1).smoke().arms[0].recipe
    assert (small.epochs, small.after) == (2, RetrainedClassifier(1))
