"""Tests of paired differences, and Holm's correction for multiple tests."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy import special

__all__ = ["holm", "p_of", "t_quantile", "wilcoxon"]

_Name = TypeVar("_Name", bound=Hashable)
_EXACT = 50  # up to so many pairs the test counts all sums of signed ranks


def t_quantile(freedom: float, level: float = 0.975) -> float:
    """Return a quantile of Student's t.

    Example:
        >>> round(t_quantile(4), 3)
        2.776
    """
    return float(special.stdtrit(freedom, level))


def p_of(mean: float, variance: float, freedom: float) -> float:
    """Return the two-sided p-value of the hypothesis that a mean is 0, by Student's t.

    It is 1 for a mean of 0, and 0 for another mean without variance.

    Example:
        >>> round(p_of(0.05, 0.0001, 4), 4)
        0.0075
    """
    if mean == 0:
        return 1.0
    return 2 * float(special.stdtr(freedom, -abs(mean) / math.sqrt(variance))) if variance > 0 else 0.0


def wilcoxon(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test that differences lie symmetrically around 0.

    Zeros are left out, and equal sizes share their mean rank. Up to 50 differences the test is exact, over all signs
    that they could have; beyond that it uses the normal approximation. The smallest p-value that five differences can
    have is 0.0625, that of six 0.031.

    Source:
        Wilcoxon 1945; Pratt and Gibbons, Concepts of Nonparametric Theory, 1981, section 3.7.

    Example:
        >>> wilcoxon([0.1, 0.2, 0.3, 0.4, 0.5])
        0.0625
    """
    kept = np.round(np.asarray(differences, float), 12)  # equal but for rounding is equal
    kept = kept[kept != 0]
    if not len(kept):
        return 1.0
    doubled = _doubled_ranks(np.abs(kept))
    total, ours = int(doubled.sum()), int(doubled[kept > 0].sum())
    least = min(ours, total - ours)
    if len(kept) > _EXACT:
        z = (least + 1 - total / 2) / math.sqrt(float((doubled.astype(float) ** 2).sum()) / 4)
        return min(1.0, 2 * float(special.ndtr(z)))
    chances = np.ones(1)
    for rank in doubled:
        grown = np.zeros(len(chances) + rank)
        grown[: len(chances)] += chances / 2
        grown[rank:] += chances / 2
        chances = grown
    return min(1.0, 2 * float(chances[: least + 1].sum()))


def _doubled_ranks(
    sizes: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return twice the ranks, counted from 1, so that the mean ranks of equal sizes are whole numbers too."""
    ordered = np.sort(sizes)
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        np.searchsorted(ordered, sizes, "left") + np.searchsorted(ordered, sizes, "right") + 1
    )
    return found


def holm(p: Mapping[_Name, float]) -> dict[_Name, float]:
    """Return p-values with Holm's correction: it bounds the family-wise error, however the tests depend on each other.

    That is the probability that any true hypothesis has a corrected p-value below α; it is at most α. The i-th smallest
    of m values becomes ``max_{j ≤ i} (m - j + 1) p_j``, at most 1.

    Source:
        Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    found, highest = {}, 0.0
    for place, name in enumerate(sorted(p, key=lambda name: p[name])):
        highest = max(highest, min(1.0, (len(p) - place) * p[name]))
        found[name] = highest
    return {name: found[name] for name in p}
