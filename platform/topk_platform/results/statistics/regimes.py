"""Losses over many regimes: their mean ranks, which of them differ, and how often one beats another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

__all__ = ["Ranking", "improvement", "in_common", "ranking"]

FEWEST_REGIMES = 5
FEWEST_LOSSES = 3
"""A ranking needs at least this many of both."""
_ALPHA = 0.05
_DIGITS = 12  # values that differ only by rounding are equal


@dataclass(frozen=True)
class Ranking:
    """The losses' ranks over several regimes: the numbers of a critical-difference diagram.

    Args:
        mean_ranks: Each loss's mean rank over the regimes, the best first; rank 1 is the best.
        regimes: The number of regimes.
        p: The p-value of Friedman's test, in Iman and Davenport's form, that all losses rank alike.
        critical: Nemenyi's critical difference: two losses whose mean ranks are further apart differ, at 0.05 over all
            pairs.
        alike: The groups of losses among which no two differ: the diagram's bars.
    """

    mean_ranks: Mapping[str, float]
    regimes: int
    p: float
    critical: float
    alike: tuple[tuple[str, ...], ...]


def in_common(values: Mapping[str, Sequence[float | None]]) -> dict[str, list[float]]:
    """Return the values of the losses that have any, in the regimes in which all of these have one.

    Args:
        values: The values by loss, one per regime; None if there is none.

    Example:
        >>> in_common({"a": [0.1, 0.2, None], "b": [0.3, 0.4, 0.5], "c": [None, None, None]})
        {'a': [0.1, 0.2], 'b': [0.3, 0.4]}
    """
    some = {loss: of for loss, of in values.items() if any(value is not None for value in of)}
    whole = [of for of in zip(*some.values(), strict=True) if None not in of]
    return {loss: [of[i] for of in whole] for i, loss in enumerate(some)}


def ranking(values: Mapping[str, Sequence[float | None]]) -> Ranking | None:
    """Return the ranking of losses by their values in the same regimes, where higher is better.

    Return None for fewer than five regimes or three losses, because the paired tests are then enough.

    Args:
        values: The values by loss, one per regime; see :func:`in_common` for missing ones.

    Source:
        Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 2006; Iman and Davenport 1980.

    Example:
        >>> result = ranking({"a": [3, 3, 3, 3, 3, 3], "b": [2, 2, 2, 2, 1, 2], "c": [1, 1, 1, 1, 2, 1]})
        >>> {name: round(rank, 2) for name, rank in result.mean_ranks.items()}, result.alike
        ({'a': 1.0, 'b': 2.17, 'c': 2.83}, (('a', 'b'), ('b', 'c')))
    """
    known = in_common(values)
    losses, regimes = len(known), min(map(len, known.values()), default=0)
    if losses < FEWEST_LOSSES or regimes < FEWEST_REGIMES:
        return None
    from scipy import stats  # noqa: PLC0415 - half a second that most tables need not wait for

    table = np.round(np.array(list(known.values()), float), _DIGITS)
    ranks = stats.rankdata(-table.T, axis=1)
    means = dict(sorted(zip(known, ranks.mean(0).tolist(), strict=True), key=lambda item: item[1]))
    studentized = float(stats.studentized_range.ppf(1 - _ALPHA, losses, math.inf))
    critical = studentized * math.sqrt(losses * (losses + 1) / 12 / regimes)
    return Ranking(means, regimes, _friedman(ranks), critical, _alike(means, critical))


def _friedman(ranks: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    regimes, losses = ranks.shape
    spread = float(((ranks - (losses + 1) / 2) ** 2).sum())
    if spread == 0:
        return 1.0
    between = regimes * float(((ranks.mean(0) - (losses + 1) / 2) ** 2).sum())
    chi = regimes * (losses - 1) * between / spread  # equal values make the spread smaller
    most = regimes * (losses - 1)
    if chi >= most - 1e-9:
        return 0.0
    return float(special.fdtrc(losses - 1, (losses - 1) * (regimes - 1), (regimes - 1) * chi / (most - chi)))


def _alike(means: Mapping[str, float], critical: float) -> tuple[tuple[str, ...], ...]:
    names = list(means)
    spans: list[tuple[str, ...]] = []
    for start in range(len(names)):
        near = [name for name in names[start:] if means[name] - means[names[start]] <= critical]
        if len(near) > 1 and not (spans and set(near) <= set(spans[-1])):
            spans.append(tuple(near))
    return tuple(spans)


def improvement(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the probability of improvement: that a run of ours beats one of theirs, where a tie counts half.

    Source:
        Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021.

    Example:
        >>> improvement([0.9, 0.8], [0.85, 0.8])
        0.625
    """
    pairs = np.subtract.outer(np.asarray(ours, float), np.asarray(theirs, float))
    return float(((pairs > 0) + (pairs == 0) / 2).mean())
