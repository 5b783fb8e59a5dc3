"""Averages of weights over the steps of a training, against plain loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from topk_platform import EMA, Model, Protocol, Recipe, Regime, UserError
from topk_platform.specs import Trial
from topk_platform.training import Session, finish, run_trials

MakeTrial = Callable[..., Trial]
IMAGES = Regime(
    "images",
    "synthetic_images",
    options={"classes": 4, "superclasses": 2, "train": 40, "validation": 8, "test": 8},
)


def by_steps(session: Session, epochs: int) -> list[dict[str, Any]]:
    """The trained weights after each step, as float64 arrays."""
    seen = []
    while session.step < epochs * session.epoch_steps:
        session.advance(lambda: True)
        seen.append({n: v.double().numpy().copy() for n, v in session.model.state_dict().items()})
    return seen


@pytest.mark.parametrize(
    "given",
    [{}, {"regime": IMAGES, "model": Model("convnet", {"width": 4})}],
    ids=["weights alone", "running statistics"],
)
def test_an_exponential_average_is_the_plain_loops(given: dict[str, Any], make_trial: MakeTrial) -> None:
    recipe = Recipe(epochs=2, average=EMA(0.8))
    session = Session.prepare(make_trial(recipe=recipe, **given))
    start = session.model.state_dict()
    whole = {name for name, value in start.items() if not value.is_floating_point()}
    average = {n: v.double().numpy().copy() for n, v in start.items()}
    usual = Session.prepare(make_trial(recipe=dataclasses.replace(recipe, average=None), **given))
    for step, weights in enumerate(by_steps(session, 2), 1):
        decay = min(0.8, step / (step + 9))
        moved = {name: decay * average[name] + (1 - decay) * value for name, value in weights.items()}
        average = moved | {name: weights[name] for name in whole}
    for name, value in session.weights().items():
        assert np.allclose(value.numpy(), average[name], atol=1e-6)
    trained = by_steps(usual, 2)[-1]
    assert all(np.array_equal(v.double().numpy(), trained[n]) for n, v in session.model.state_dict().items())


def test_an_average_that_forgets_all_is_usual_training_to_the_bit(make_trial: MakeTrial, memory: Any) -> None:
    plain, forgetful = make_trial(), make_trial(recipe=Recipe(epochs=3, average=EMA(0.0)))
    kept, averaged = memory(), memory()
    usual, shown = finish(run_trials([plain], kept))[0], finish(run_trials([forgetful], averaged))[0]
    assert shown.status == "completed", shown.reason
    assert (usual.test, usual.validation) == (shown.test, shown.validation)
    one, other = kept.models[plain.key], averaged.models[forgetful.key]
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_what_is_validated_kept_and_tested_is_the_average(make_trial: MakeTrial, memory: Any) -> None:
    trial = make_trial(recipe=Recipe(epochs=3, average=EMA(0.95)))
    keeper = memory()
    record = finish(run_trials([trial], keeper))[0]
    session = Session.prepare(trial)
    by_steps(session, 3)
    trained = {name: value.clone() for name, value in session.model.state_dict().items()}
    assert all(torch.equal(value, session.weights()[n]) for n, value in keeper.models[trial.key].items())
    assert record.test is not None
    tested = session.test(0, keeper.models[trial.key]).measures.tolist()
    assert record.test == session.scorer.named(tested[1:])
    usual = Session.prepare(make_trial())
    validated = []
    for weights in (trained, session.weights()):
        usual.model.load_state_dict(weights)
        validated.append(usual.scorer.named(usual.validate()[0, 1:].tolist()))
    assert validated[0] != record.validation == validated[1]


def test_an_ensemble_refuses_an_average(make_trial: MakeTrial) -> None:
    with pytest.raises(UserError, match="an ensemble cannot train with average"):
        dataclasses.replace(make_trial().arm, recipe=Recipe(3, average=EMA()), protocol=Protocol(ensemble=2))
