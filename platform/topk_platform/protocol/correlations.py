"""How well early validation predicts final validation. Users look at this before they trust a pruner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topk_platform.protocol.ended import Ended
from topk_platform.protocol.search.pruning import rung_epochs, values_at
from topk_platform.specs import Arm, Quantile

__all__ = ["early_correlations"]

_FEWEST = 3  # with two trials it is always 1 or -1


def early_correlations(arm: Arm, ended: Sequence[Ended]) -> dict[int, tuple[int, float | None]]:
    """Return, for each rung's epoch, the number of completed trials with a value there and the rank correlation.

    The rank correlation is Spearman's, of the selection metric at the rung and at the end (of the weights kept). At 1,
    stopping the worse trials at the rung stops those that would end worse. At 0, it stops arbitrary trials. The final
    values of stopped trials are unknown, so the correlation says less if more trials were stopped. An arm without
    pruning gets the rungs of the default pruner.

    Args:
        arm: The arm.
        ended: Its ended search trials.

    Example:
        >>> from topk_platform.specs import Loss, Model, Recipe, Regime
        >>> arm = Arm(Regime("r", "digits"), Model("mlp"), Loss("cross_entropy"), 1, Recipe(epochs=4))
        >>> curves = [{1: 0.1, 2: 0.5, 4: 0.8}, {1: 0.3, 2: 0.6, 4: 0.9}, {1: 0.2, 2: 0.4, 4: 0.6}]
        >>> early_correlations(arm, [Ended(n, {}, "completed", curve) for n, curve in enumerate(curves)])
        {1: (3, 0.5), 2: (3, 1.0)}
    """
    completed = [trial for trial in ended if trial.status == "completed"]
    rungs = arm.protocol.pruner.rungs or Quantile().rungs
    correlations = {}
    for epoch in rung_epochs(rungs, arm.recipe):
        pairs = [(value, trial.objective) for trial in completed for value in values_at([trial], epoch)]
        correlations[epoch] = len(pairs), _spearman(pairs)
    return correlations


def _spearman(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than three pairs, or if all values on one side are equal.

    Args:
        pairs: The pairs of values.

    Example:
        >>> _spearman([(1, 0.1), (2, 0.4), (3, 0.9)])
        1.0
    """
    if len(pairs) < _FEWEST or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return None
    one, other = (_ranks(side) for side in zip(*pairs, strict=True))
    return round(float(np.corrcoef(one, other)[0, 1]), 12)


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return the ranks of values, from 1. Equal values get the mean of their ranks."""
    # scipy.stats has a function for it, but takes a second to import.
    _, positions, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[positions]
    return ranks
