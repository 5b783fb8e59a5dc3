"""Which weights of a trial are kept and shown: those of the best epoch, or their average; and when it stops early."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from small_trials import IMAGES, Memory, a_trial, bits, completed, cut_and_resumed, same_weights

from topk_platform import EMA, Model, Protocol, Recipe, UserError
from topk_platform.training import Session, finish, run_trials

STEPS = 17
UNSTEADY = Recipe(30, learning_rate=0.6, schedule="constant", keep=("top1", "top3"))
"""At a rate so high that epochs go up and down: of 20 seeds, the longest with a patience of 3 stops after 17."""


def last_epoch(curves: list[dict[str, float]], recipe: Recipe, patience: int) -> int:
    """By the definition: the first of the validations (counted from 1) of which as many as that bring nothing new."""
    for n in range(1, len(curves) + 1):
        fresh = [
            any(all(curves[i][m] > earlier[m] for earlier in curves[:i]) for m in recipe.keep)
            for i in range(n)
        ]
        if n > patience and not any(fresh[n - patience :]):
            return n
    return len(curves)


def test_training_ends_when_nothing_kept_got_better() -> None:
    """Three seeds; what the epochs before the end show is what they show without patience."""
    wholes = {seed: completed(a_trial(recipe=UNSTEADY, seed=seed)) for seed in (1, 2, 3)}
    lengths: dict[int, set[int]] = {1: set(), 2: set(), 3: set()}
    for patience, (seed, whole) in itertools.product(lengths, wholes.items()):
        short = completed(a_trial(recipe=dataclasses.replace(UNSTEADY, patience=patience), seed=seed))
        curves = [dict(epoch.validation) for epoch in whole.epochs]
        expected = last_epoch(curves, UNSTEADY, patience)
        assert [epoch.epoch for epoch in short.epochs] == list(range(1, expected + 1))
        assert [epoch.validation for epoch in short.epochs] == curves[:expected]
        assert short.validation["top1"] == max(curve["top1"] for curve in curves[:expected])
        early = f"stopped after epoch {expected}: top1 and top3 got no better in {patience} validations"
        assert short.reason == (early if expected < 30 else "") and whole.reason == ""
        lengths[patience].add(expected)
    assert all(min(result) < 30 for result in lengths.values())


def test_the_test_is_of_the_weights_that_were_kept() -> None:
    trial = a_trial(recipe=dataclasses.replace(UNSTEADY, keep=("top1",), patience=2))
    record = completed(trial)
    best = max(record.epochs, key=lambda epoch: (epoch.validation["top1"], -epoch.epoch))
    assert record.epochs[-1].epoch == best.epoch + 2 < 30
    session = Session.prepare(trial)
    for _ in range(best.epoch):
        session.advance()
    assert record.test == session.scorer.named(session.test(0, session.weights()).measures[1:].tolist())


def test_validations_are_counted_and_not_epochs() -> None:
    recipe = Recipe(12, schedule="constant", evaluate_every=2, keep=("top1",), patience=2)
    record = completed(a_trial(recipe=recipe, values={"learning_rate": 1e-12}))
    assert [epoch.epoch for epoch in record.epochs] == [2, 4, 6]
    assert record.reason == "stopped after epoch 6: top1 got no better in 2 validations"


def test_what_runs_out_at_the_last_epoch_is_not_early() -> None:
    recipe = Recipe(3, schedule="constant", keep=("top1",), patience=2)
    record = completed(a_trial(recipe=recipe, values={"learning_rate": 1e-12}))
    assert len(record.epochs) == 3 and record.reason == ""


@pytest.mark.parametrize("before", [1, STEPS, STEPS + 1, 2 * STEPS])
def test_the_count_outlives_the_process(before: int) -> None:
    """Cut off at places within the patience, up to the last step but one that the checkpoint can be of."""
    trial = a_trial(recipe=dataclasses.replace(UNSTEADY, patience=2))
    expected = completed(trial)
    assert expected.reason
    cutting = Memory(expected.epochs[-1].epoch * STEPS - before)
    assert bits(*cut_and_resumed([trial], cutting)) == bits(expected)


def test_a_member_that_has_stopped_lets_the_others_go_on() -> None:
    """One of three stands still and stops after three epochs; its record is that of the trial alone."""
    recipe = Recipe(8, batch_size=300, schedule="constant", keep=("top1",), patience=2)
    rates = (0.02, 1e-12, 0.03)
    trials = [
        a_trial(
            recipe=recipe,
            seed=n + 1,
            together=(1, 2, 3),
            values={"learning_rate": rates[n]},
            stop_below=((4, 2.0),) if n == 1 else (),  # after its end
        )
        for n in range(3)
    ]
    keeper = Memory()
    records = finish(run_trials(trials, keeper))
    assert {record.status for record in records} == {"completed"}
    assert len(records[1].epochs) == 3 and len(records[0].epochs) > 4
    assert records[1].reason == "stopped after epoch 3: top1 got no better in 2 validations"
    alone = completed(trials[1])
    assert [e.epoch for e in alone.epochs] == [e.epoch for e in records[1].epochs]
    assert records[1].validation == pytest.approx(alone.validation, abs=1e-6)
    assert records[1].test == pytest.approx(alone.test, abs=1e-6)
    for cut in (9, 4 * 4, 4 * 4 + 2):  # before it stops, and after
        assert bits(*cut_and_resumed(trials, Memory(cut))) == bits(*records)


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
def test_an_exponential_average_is_the_plain_loops(given: dict[str, Any]) -> None:
    recipe = Recipe(epochs=2, average=EMA(0.8))
    session = Session.prepare(a_trial(recipe=recipe, **given))
    start = session.model.state_dict()
    whole = {name for name, value in start.items() if not value.is_floating_point()}
    average = {n: v.double().numpy().copy() for n, v in start.items()}
    usual = Session.prepare(a_trial(recipe=dataclasses.replace(recipe, average=None), **given))
    for step, weights in enumerate(by_steps(session, 2), 1):
        decay = min(0.8, step / (step + 9))
        moved = {name: decay * average[name] + (1 - decay) * value for name, value in weights.items()}
        average = moved | {name: weights[name] for name in whole}
    for name, value in session.weights().items():
        assert np.allclose(value.numpy(), average[name], atol=1e-6)
    trained = by_steps(usual, 2)[-1]
    assert all(np.array_equal(v.double().numpy(), trained[n]) for n, v in session.model.state_dict().items())


def test_what_is_validated_kept_and_tested_is_the_average() -> None:
    trial = a_trial(recipe=Recipe(epochs=3, average=EMA(0.95)))
    keeper = Memory()
    record = completed(trial, keeper)
    session = Session.prepare(trial)
    by_steps(session, 3)
    trained = {name: value.clone() for name, value in session.model.state_dict().items()}
    assert same_weights(keeper.models[trial.key], session.weights())
    assert record.test is not None
    tested = session.test(0, keeper.models[trial.key]).measures.tolist()
    assert record.test == session.scorer.named(tested[1:])
    usual = Session.prepare(a_trial())
    validated = []
    for weights in (trained, session.weights()):
        usual.model.load_state_dict(weights)
        validated.append(usual.scorer.named(usual.validate()[0, 1:].tolist()))
    assert validated[0] != record.validation == validated[1]


def test_an_ensemble_refuses_an_average() -> None:
    with pytest.raises(UserError, match="an ensemble cannot train with average"):
        dataclasses.replace(a_trial().arm, recipe=Recipe(3, average=EMA()), protocol=Protocol(ensemble=2))
