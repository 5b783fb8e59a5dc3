"""The precision of a mean: its test's power, the effects that it can detect, and the seeds that an effect needs."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from topk_platform.results.statistics.tests import Part, critical, t_quantile

__all__ = ["Precision"]

_POWER = 0.8
_MOST = 10_000
_NODES = 24  # from three seeds on, the power is right to 0.004 at every level

Numbers: TypeAlias = npt.NDArray[np.float64]


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
        return float(weights @ special.ndtr((effect - reaches) / error))

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
            return float(weights @ special.ndtr((effect - reaches) / error)) - power

        farthest = float(reaches.max()) + 9 * error
        return float(optimize.brentq(missing, -9 * error, farthest, xtol=1e-9 * error, rtol=1e-9))

    def rows_for(self, effect: float, level: float = 0.975, power: float = _POWER) -> int | None:
        """Return how many rows give this power for an effect of this size; None if 10,000 are too few.

        Example:
            >>> Precision(0.25, 0.0, 10, math.inf).rows_for(1.5), Precision(0.25, 1.0, 10, 400).rows_for(1.5)
            (11, None)
        """
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
