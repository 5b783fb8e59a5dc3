"""Which trials are stopped early: thresholds fixed when a trial starts, so that they can travel with it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from topk_platform.outcomes import Ended
from topk_platform.specs import Pruning, Recipe

__all__ = ["stopping_values"]


def stopping_values(
    pruning: Pruning | None, recipe: Recipe, history: Sequence[Ended]
) -> tuple[tuple[int, float], ...]:
    """Return pairs (epoch, value): a trial is stopped after that epoch when its metric is below that value.

    The value is the quantile of what the trials of ``history`` had at the rung; rungs that fewer than
    ``pruning.startup`` of them reached stop nothing. A trial that was completed before it (``Recipe.patience``) has
    there what it had last, for its result is compared with those of trials that go on.

    Args:
        pruning: The rule, or None for no stopping.
        recipe: Gives the number of epochs.
        history: The arm's trials that the new one may know.

    Example:
        >>> past = [Ended(n, {}, "completed", {1: 0.1 * n, 2: 0.9}) for n in range(4)]
        >>> stopping_values(Pruning(rungs=(0.5,), startup=4), Recipe(epochs=2), past)
        ((1, 0.15),)
    """
    if pruning is None:
        return ()
    epochs = sorted({_validated(rung, recipe) for rung in pruning.rungs} - {recipe.epochs})
    reached = {
        epoch: [value for ended in history if (value := _value(ended, epoch)) is not None] for epoch in epochs
    }
    return tuple(
        (epoch, round(float(np.quantile(values, pruning.quantile)), 12))
        for epoch, values in reached.items()
        if len(values) >= pruning.startup
    )


def _value(ended: Ended, epoch: int) -> float | None:
    last = max(ended.curve, default=0)
    early = ended.status == "completed" and last < epoch
    return ended.curve.get(last if early else epoch)


def _validated(rung: float, recipe: Recipe) -> int:
    """Return the first validated epoch at or after a rung."""
    epochs = range(math.ceil(rung * recipe.epochs), recipe.epochs + 1)
    return next(epoch for epoch in epochs if recipe.evaluates(epoch))
