"""Tests of means whose variance has several parts: p-values, Holm's correction, power, and the rows that one needs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

__all__ = ["Part", "Precision", "critical", "holm", "p_of", "t_quantile"]

Numbers = npt.NDArray[np.float64]
_Name = TypeVar("_Name", bound=Hashable)
Part = tuple[float, float]
"""A part of a mean's variance, and its degrees of freedom."""

_POWER = 0.8
_MOST = 10_000
_NODES = 24  # from three seeds on, the power is right to 0.004 at every level
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


@dataclass(frozen=True)
class Precision:
    """The parts of a mean's variance, from which tests, power and needed seeds are computed.

    Args:
        by_seeds: The seeds' part, ``s² / S``, which falls with their number S. If searches are repeated, it is the
            searches' part, which contains the seeds.
        by_images: The images' part, which more seeds do not make smaller.
        rows: The number of seeds, or of searches if searches are repeated.
        images: The effective number of test images (:class:`ImagePart`'s ``size``); infinite if the images' part is not
            known.
        groups: The degrees of freedom of the images' part; by default the number of images less 1.
    """

    by_seeds: float
    by_images: float
    rows: int
    images: float
    groups: float | None = None

    def parts(self, rows: int | None = None) -> list[Part]:
        """Return the parts of the variance with this many rows, by default the present number."""
        rows = rows or self.rows
        of_images = max(self.images - 1, 1) if self.groups is None else self.groups
        return [
            (self.by_seeds * self.rows / rows, rows - 1),
            (self.by_images, of_images),
        ]

    def error(self, rows: int | None = None) -> float:
        """Return the standard error with this many rows, by default the present number."""
        return math.sqrt(sum(variance for variance, _ in self.parts(rows)))

    def critical(self, level: float = 0.975, rows: int | None = None) -> float:
        """Return how many standard errors a one-sided interval at this level reaches from the mean."""
        return critical(self.parts(rows), level)

    def power(self, effect: float, rows: int | None = None, level: float = 0.975) -> float:
        """Return the power of a one-sided test at ``1 - level``: the probability that it finds an effect of this size.

        The test finds the effect where the mean exceeds ``√(Σ v_i u_i t_i²)``. There ``u_i`` is the estimate of a part
        of the variance over the part itself: chi-squared over its degrees of freedom. The power is the mean of
        ``Φ((effect - √(Σ v_i u_i t_i²)) / √(Σ v_i))`` over both ``u_i``.

        Example:
            >>> round(Precision(0.25, 0.0, 10, math.inf).power(1.5), 2)
            0.76
        """
        error = self.error(rows)
        if error == 0:
            return float(effect > 0)
        reaches, weights = self._reaches(level, rows)
        return float((weights * special.ndtr((effect - reaches) / error)).sum())

    def _reaches(self, level: float, rows: int | None = None) -> tuple[Numbers, Numbers]:
        """Return how far from the mean the test's interval may reach, by the estimated variances; and the weights."""
        squares, weights = np.zeros(1), np.ones(1)
        for variance, freedom in self.parts(rows):
            if variance > 0:
                scaled, shares = _estimates(freedom)
                reach = variance * t_quantile(freedom, level) ** 2 * scaled
                squares = np.add.outer(squares, reach).ravel()
                weights = np.multiply.outer(weights, shares).ravel()
        return np.sqrt(squares), weights

    def detectable(self, level: float = 0.975, power: float = _POWER) -> float:
        """Return the minimal detectable effect: the size that a one-sided test at ``1 - level`` finds with this power.

        Source:
            Bloom, Minimum Detectable Effects, Evaluation Review, 1995.

        Example:
            >>> result = Precision(0.25, 0.0, 10, math.inf).detectable()
            >>> round(result, 2), round(Precision(0.25, 0.0, 10, math.inf).power(result), 3)
            (1.57, 0.8)
        """
        error = self.error()
        if error == 0:
            return 0.0
        reaches, weights = self._reaches(level)

        def missing(effect: float) -> float:
            return float((weights * special.ndtr((effect - reaches) / error)).sum()) - power

        farthest = float(reaches.max()) + 9 * error
        return float(optimize.brentq(missing, -9 * error, farthest, xtol=1e-9 * error, rtol=1e-9))

    def rows_for(self, effect: float, level: float = 0.975, power: float = _POWER) -> int | None:
        """Return how many rows give this power for an effect of this size; None if 10,000 are too few.

        Example:
            >>> Precision(0.25, 0.0, 10, math.inf).rows_for(1.5), Precision(0.25, 1.0, 10, 400).rows_for(1.5)
            (11, None)
        """
        power -= _NOTHING  # an effect with just this power needs no row more
        if self.power(effect, _MOST, level) < power:
            return None
        return 2 + bisect_left(range(2, _MOST), power, key=lambda rows: self.power(effect, rows, level))

    def scaled(self, scale: float) -> Precision:
        """Return the precision of the mean times ``scale``."""
        return replace(self, by_seeds=self.by_seeds * scale**2, by_images=self.by_images * scale**2)


@cache
def _estimates(freedom: float) -> tuple[Numbers, Numbers]:
    """Return estimates of a variance over the variance itself, and their weights: Gauss-Legendre nodes by quantile."""
    if math.isinf(freedom):
        return np.ones(1), np.ones(1)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    scaled = special.gammaincinv(freedom / 2, (nodes + 1) / 2) * 2 / freedom
    return np.asarray(scaled, np.float64), np.asarray(weights / 2, np.float64)
