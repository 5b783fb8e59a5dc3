"""Rules of stopping against Optuna's, step by step, and what of them travels with a trial."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_platform import NoPruning, Patient, Quantile, Recipe, SuccessiveHalving, UserError
from topk_platform.protocol import Stopping, stopping_values
from topk_platform.protocol.ended import Ended
from topk_platform.protocol.search.pruning import rung_epochs
from topk_platform.specs import EpochRecord, Pruner, rungs_of
from topk_platform.training.trials.member import Member

EPOCHS = 8
RECIPE = Recipe(EPOCHS)


def curve_of(draw: random.Random) -> dict[int, float]:
    return {epoch: draw.randrange(20) / 20 for epoch in range(1, EPOCHS + 1)}


def without_ties(draw: random.Random) -> dict[int, float]:
    return {epoch: draw.random() for epoch in range(1, EPOCHS + 1)}


def a_past(
    draw: random.Random,
    pruner: Pruner,
    number: int,
    drawn: Callable[[random.Random], dict[int, float]] = curve_of,
) -> list[Ended]:
    """Trials one after another, each stopped as the rule says."""
    past: list[Ended] = []
    for n in range(number):
        curve, stopping = drawn(draw), stopping_values(pruner, RECIPE, past)
        stop = stopped_at(stopping, curve)
        seen = {epoch: value for epoch, value in curve.items() if stop is None or epoch <= stop}
        past.append(Ended(n, {}, "completed" if stop is None else "pruned", seen))
    return past


def stopped_at(stopping: Stopping, curve: dict[int, float]) -> int | None:
    """The epoch that a training with such a curve is stopped after, by the loop's own code."""
    member = Member(_Trial(stopping))  # type: ignore[arg-type]
    for epoch, value in curve.items():
        member.epochs.append(EpochRecord(epoch, 0.0, {"top1": value}, 0.0, 0.0))
        member._prune(epoch, {"top1": value})
        if member.status is not None:
            return epoch
    return None


class _Trial:
    def __init__(self, stopping: Stopping) -> None:
        self.stop_below, self.spare, self.arm = stopping.below, stopping.spare, self
        self.metric = "top1"


def optunas(
    pruner: optuna.pruners.BasePruner, past: list[Ended], curve: dict[int, float], rungs: list[int]
) -> int | None:
    """The epoch that Optuna stops a training after, when asked at the rungs."""
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for ended in past:
        trial = study.ask()
        for epoch, value in ended.curve.items():
            trial.report(value, epoch)
            # Successive halving notes at each rung that a trial was there.
            trial.should_prune()
        if ended.status == "completed":
            study.tell(trial, ended.objective)
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    trial = study.ask()
    for epoch, value in curve.items():
        trial.report(value, epoch)
        if trial.should_prune() and epoch in rungs:
            return epoch
    return None


@given(seed=st.integers(0, 10**6), number=st.integers(0, 9), startup=st.integers(1, 4))
def test_the_median_stops_whom_optunas_median_stops(seed: int, number: int, startup: int) -> None:
    """Of one trial's values Optuna looks at the best so far, we at the last: rising curves have no difference."""
    draw, pruner = random.Random(seed), Quantile((0.25, 0.5, 0.75), 0.5, startup)
    past = [
        Ended(n, {}, "completed", dict(zip(range(1, 9), sorted(curve_of(draw).values()), strict=True)))
        for n in range(number)
    ]
    curve = dict(zip(range(1, 9), sorted(curve_of(draw).values()), strict=True))
    theirs = optunas(optuna.pruners.MedianPruner(startup, 0), past, curve, [2, 4, 6])
    assert stopped_at(stopping_values(pruner, RECIPE, past), curve) == theirs


@given(seed=st.integers(0, 10**6), number=st.integers(0, 12), factor=st.integers(2, 4))
def test_successive_halving_stops_whom_optunas_stops(seed: int, number: int, factor: int) -> None:
    draw, pruner = random.Random(seed), SuccessiveHalving(1 / EPOCHS, factor, startup=1)
    past, curve = a_past(draw, pruner, number), curve_of(draw)
    rungs = [factor**power for power in range(4) if factor**power < EPOCHS]
    assert rung_epochs(rungs_of(pruner), RECIPE) == rungs
    theirs = optunas(optuna.pruners.SuccessiveHalvingPruner(1, factor, 0), past, curve, rungs)
    assert stopped_at(stopping_values(pruner, RECIPE, past), curve) == theirs


@given(seed=st.integers(0, 10**6), patience=st.integers(1, 4), tolerance=st.sampled_from((0.0, 0.15)))
def test_patience_is_optunas(seed: int, patience: int, tolerance: float) -> None:
    draw = random.Random(seed)
    rungs = tuple(epoch / EPOCHS for epoch in range(1, EPOCHS))
    pruner = Patient(Quantile(rungs, 1.0, startup=1), patience, tolerance)
    past, curve = [Ended(0, {}, "completed", dict.fromkeys(range(1, EPOCHS + 1), 2.0))], curve_of(draw)
    # What it is compared with nothing reaches: the rule inside would stop it at every rung.
    everything = optuna.pruners.PatientPruner(None, patience, tolerance)
    theirs = optunas(everything, past, curve, list(range(1, EPOCHS)))
    assert stopped_at(stopping_values(pruner, RECIPE, past), curve) == theirs


def test_nothing_is_stopped_without_a_rule_or_before_there_are_enough() -> None:
    past = [Ended(n, {}, "completed", dict.fromkeys(range(1, 9), 0.5)) for n in range(3)]
    assert stopping_values(NoPruning(), RECIPE, past) == Stopping()
    for pruner in (Quantile(), SuccessiveHalving(), Patient(SuccessiveHalving())):
        assert stopping_values(pruner, RECIPE, past) == Stopping()


def test_rungs_that_are_whole_epochs_but_for_rounding_are_these_epochs() -> None:
    assert rung_epochs((0.07, 0.14, 0.55), Recipe(100)) == [7, 14, 55]
    assert rung_epochs(rungs_of(SuccessiveHalving(0.1, factor=3)), Recipe(10)) == [1, 3, 9]
    assert rung_epochs((1e-12,), Recipe(10)) == [1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SuccessiveHalving(factor=1), "SuccessiveHalving.factor must be at least 2, got 1"),
        (lambda: SuccessiveHalving(first=1.0), r"SuccessiveHalving.first must be in \(0, 1\), got 1.0"),
        (
            lambda: Patient(NoPruning()),
            "Patient.pruner must be a Quantile or a SuccessiveHalving, got NoPruning()",
        ),
        (lambda: Patient(patience=0), "Patient.patience must be at least 1"),
    ],
)
def test_rules_are_checked_when_they_are_made(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()
