"""Stopping trials early. The thresholds are fixed when a trial starts, and are stored in the trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from topk_platform.protocol.ended import Ended
from topk_platform.specs import NoPruning, Patient, Pruner, Quantile, Recipe, SuccessiveHalving, rungs_of

__all__ = ["Stopping", "rung_epochs", "stopping_values", "values_at"]


@dataclass(frozen=True)
class Stopping:
    """The thresholds that stop a trial. They are stored in it, see :class:`~topk_platform.specs.Trial`.

    Args:
        below: Pairs (epoch, value): the trial stops after that epoch if the metric is below that value.
        spare: Pair (n, tolerance): the trial does not stop while the best of its last n validations is at least the
            best of the earlier ones minus the tolerance, or while it has at most n validations. Empty: no exception.
    """

    below: tuple[tuple[int, float], ...] = ()
    spare: tuple[int, float] | tuple[()] = ()


def stopping_values(pruner: Pruner, recipe: Recipe, history: Sequence[Ended]) -> Stopping:
    """Return the thresholds of a new trial.

    The thresholds are computed from the values that the trials of ``history`` had at the rungs. A rung that fewer than
    ``startup`` trials reached stops nothing. A trial that completed before a rung (``Recipe.patience``) counts there
    with its last value, because its result is compared with the results of trials that go on.

    Args:
        pruner: The rule.
        recipe: The recipe, which gives the number of epochs.
        history: The arm's ended trials that the new trial may use.

    Example:
        >>> past = [Ended(n, {}, "completed", {1: 0.1 * n, 2: 0.9}) for n in range(4)]
        >>> stopping_values(Quantile(rungs=(0.5,), startup=4), Recipe(epochs=2), past)
        Stopping(below=((1, 0.15),), spare=())
        >>> stopping_values(SuccessiveHalving(first=0.5, factor=2), Recipe(epochs=2), past).below
        ((1, 0.2),)
    """
    match pruner:
        case NoPruning():
            return Stopping()
        case Patient(inner, patience, tolerance):
            below = stopping_values(inner, recipe, history).below
            return Stopping(below, (patience + 1, tolerance) if below else ())
    reached = {epoch: values_at(history, epoch) for epoch in rung_epochs(rungs_of(pruner), recipe)}
    return Stopping(
        tuple(
            (epoch, round(_threshold(pruner, values), 12))
            for epoch, values in reached.items()
            if len(values) >= pruner.startup
        )
    )


def _threshold(pruner: Quantile | SuccessiveHalving, values: Sequence[float]) -> float:
    """Return the least value with which a trial goes on, computed from the values of earlier trials."""
    if isinstance(pruner, Quantile):
        return float(np.quantile(values, pruner.quantile))
    going_on = max(1, (len(values) + 1) // pruner.factor)
    return sorted(values, reverse=True)[going_on - 1]


def rung_epochs(rungs: Sequence[float], recipe: Recipe) -> list[int]:
    """Return the first validated epoch at or after each fraction of a training, in order, without the last epoch.

    Example:
        >>> rung_epochs((0.25, 0.5, 0.95), Recipe(epochs=10))
        [3, 5]
    """
    return sorted({_validated(rung, recipe) for rung in rungs} - {recipe.epochs})


def values_at(history: Sequence[Ended], epoch: int) -> list[float]:
    """Return the values of trials after an epoch, for those that reached it or completed before it."""
    return [value for ended in history if (value := _value(ended, epoch)) is not None]


def _value(ended: Ended, epoch: int) -> float | None:
    value = ended.curve.get(epoch)
    if value is not None or ended.status != "completed":
        return value
    last = max(ended.curve, default=0)
    return ended.curve.get(last) if last < epoch else None


def _validated(rung: float, recipe: Recipe) -> int:
    """Return the first validated epoch at or after a rung."""
    first = math.ceil(
        round(rung * recipe.epochs, 9)
    )  # 0.07 · 100 and 0.1 · 3 · 10 are whole but for rounding
    epochs = range(max(1, first), recipe.epochs + 1)
    return next(epoch for epoch in epochs if recipe.evaluates(epoch))
