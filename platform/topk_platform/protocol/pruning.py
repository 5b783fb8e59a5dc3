"""Stopping trials early. The thresholds are fixed when a trial starts, and are stored in the trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from topk_platform.errors import as_user_error
from topk_platform.protocol.search_progress import Ended
from topk_platform.references import look_up
from topk_platform.specs import NoPruning, OwnPruner, Pruner, Quantile, Recipe

__all__ = ["rung_epochs", "stopping_values", "values_at"]


def stopping_values(
    pruner: Pruner, recipe: Recipe, history: Sequence[Ended]
) -> tuple[tuple[int, float], ...]:
    """Return the thresholds of a new trial, pairs (epoch, value): it stops after the epoch if it is below the value.

    The thresholds are computed from the values that the trials of ``history`` had at the rungs. A rung that fewer than
    ``startup`` trials reached stops nothing. A trial that completed before a rung (``Recipe.patience``) counts there
    with its last value, because its result is compared with the results of trials that go on.

    Example:
        >>> past = [Ended(n, {}, "completed", {1: 0.1 * n, 2: 0.9}) for n in range(4)]
        >>> stopping_values(Quantile(rungs=(0.5,), startup=4), Recipe(epochs=2), past)
        ((1, 0.15),)
    """
    match pruner:
        case NoPruning():
            return ()
        case Quantile(rungs, quantile, startup):
            reached = {epoch: values_at(history, epoch) for epoch in rung_epochs(rungs, recipe)}
            return tuple(
                (epoch, round(float(np.quantile(values, quantile)), 12))
                for epoch, values in reached.items()
                if len(values) >= startup
            )
        case OwnPruner(reference, rungs):
            threshold = look_up("pruner", reference, dict[str, Callable[..., Any]]())
            with as_user_error(f"pruner {reference}"):
                given = {epoch: threshold(history, epoch) for epoch in rung_epochs(rungs, recipe)}
                return tuple((epoch, float(value)) for epoch, value in given.items() if value is not None)


def rung_epochs(rungs: Sequence[float], recipe: Recipe) -> list[int]:
    """Return the first validated epoch at or after each fraction of a training, in order, without the last epoch.

    Example:
        >>> rung_epochs((0.25, 0.5, 0.95), Recipe(epochs=10))
        [3, 5]
    """
    validated = [epoch for epoch in range(1, recipe.epochs + 1) if recipe.evaluates(epoch)]
    # 0.07 · 100 and 0.1 · 3 · 10 are whole but for rounding.
    firsts = (round(rung * recipe.epochs, 9) for rung in rungs)
    return sorted({next(e for e in validated if e >= first) for first in firsts} - {recipe.epochs})


def values_at(history: Sequence[Ended], epoch: int) -> list[float]:
    """Return the values of trials after an epoch, for those that reached it or completed before it."""
    return [value for ended in history if (value := _value(ended, epoch)) is not None]


def _value(ended: Ended, epoch: int) -> float | None:
    value = ended.curve.get(epoch)
    if value is not None or ended.status != "completed":
        return value
    last = max(ended.curve, default=0)
    return ended.curve.get(last) if last < epoch else None
