"""Tests of means whose variance has several parts, and Holm's correction for multiple tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from scipy import special

__all__ = ["Part", "critical", "holm", "p_of", "t_quantile"]

_Name = TypeVar("_Name", bound=Hashable)
Part = tuple[float, float]
"""A part of a mean's variance, and its degrees of freedom."""

_NOTHING = 1e-9  # of a standard error
_LEAST = 1e-300
_CLOSE = 1e-11  # relative, of standard errors


def t_quantile(freedom: float, level: float = 0.975) -> float:
    """Return a quantile of Student's t.

    Example:
        >>> round(t_quantile(4), 3)
        2.776
    """
    return float(special.stdtrit(freedom, level))


def critical(parts: Sequence[Part], level: float = 0.975) -> float:
    """Return the distance from a mean to its interval's end, in standard errors, if the variance is a sum of parts.

    With parts ``v_i`` of ``ν_i`` degrees of freedom, the interval reaches ``√(Σ v_i t(ν_i)²)``: every part keeps its
    own Student quantile. For normal values, the interval covers the truth at least as often as its level says, at every
    level. A single number of degrees of freedom, such as Satterthwaite's, is right only in the middle of the
    distribution. In the tail that a correction for 120 tests needs, it is up to 30 times too generous; Cochran and
    Cox's mean of the quantiles is up to 3 times too generous.

    Args:
        parts: The parts of the variance, each with its degrees of freedom.
        level: The level of the one-sided quantile.

    Source:
        Banerjee, Approximate Confidence Interval for Linear Functions of Means of k Populations when the Population
        Variances are not Equal, Sankhyā 22, 1960.

    Example:
        >>> round(critical([(1.0, 4.0)]), 3), round(critical([(1.0, 4.0), (3.0, 99.0)]), 3)
        (2.776, 2.209)
    """
    whole = sum(variance for variance, _ in parts)
    if whole <= 0:
        return t_quantile(min(freedom for _, freedom in parts), level)
    return math.sqrt(sum(v * t_quantile(freedom, level) ** 2 for v, freedom in parts if v > 0) / whole)


def p_of(mean: float, parts: Sequence[Part]) -> float:
    """Return the two-sided p-value of the hypothesis that a mean is 0.

    At this level the interval of :func:`critical` ends at 0. The p-value is 1 for a mean of 0, and 0 for another mean
    without variance.

    Args:
        mean: The mean.
        parts: The parts of its variance, each with its degrees of freedom.

    Example:
        >>> round(p_of(0.05, [(0.0001, 4)]), 4), round(p_of(0.05, [(0.00005, 4), (0.00005, 400)]), 5)
        (0.0075, 0.00304)
    """
    counting = [(v, freedom) for v, freedom in parts if v > 0]
    if mean == 0:
        return 1.0
    if not counting:
        return 0.0
    whole = sum(v for v, _ in counting)
    size = abs(mean) / math.sqrt(whole)
    if size < _NOTHING:
        return 1.0
    # At the level ``low``, one part alone reaches as far as the mean; at ``high``, all parts together reach no further.
    low = max(float(special.stdtr(freedom, -size * math.sqrt(whole / v))) for v, freedom in counting)
    high = max(float(special.stdtr(freedom, -size)) for _, freedom in counting)
    if low < _LEAST:
        return 2 * high

    def beyond(logarithm: float) -> float:
        return math.log(critical(counting, math.exp(logarithm)) / size)

    return 2 * math.exp(_root(beyond, math.log(low), math.log(high)))


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Return the zero of a falling function between two ends, by the Illinois form of false position."""
    above, below, side = falling(low), falling(high), 0
    while above > _CLOSE and below < -_CLOSE:
        middle = low + (high - low) * above / (above - below)
        result = falling(middle)
        if result > 0:
            low, above, below = middle, result, below / 2 if side > 0 else below
        else:
            high, below, above = middle, result, above / 2 if side < 0 else above
        side = 1 if result > 0 else -1
    return low if above <= _CLOSE else high


def holm(p: Mapping[_Name, float]) -> dict[_Name, float]:
    """Return p-values with Holm's correction: it bounds the family-wise error, however the tests depend on each other.

    The family-wise error is the probability that any true hypothesis has a corrected p-value below α; it is at most α.
    The i-th smallest of m values becomes ``max_{j ≤ i} (m - j + 1) p_j``, at most 1.

    Source:
        Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    result, highest = {}, 0.0
    for i, name in enumerate(sorted(p, key=lambda name: p[name])):
        highest = max(highest, min(1.0, (len(p) - i) * p[name]))
        result[name] = highest
    return {name: result[name] for name in p}
