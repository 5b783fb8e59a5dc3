"""What an interval could have shown, and how many seeds would have shown it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special

from topk_platform.reports.statistics.tests import t_quantile

__all__ = ["Precision"]

_POWER = 0.8
_MOST = 10_000


@dataclass(frozen=True)
class Precision:
    """How the error of a mean comes about, to ask what more seeds would make of it.

    Args:
        by_seeds: The variance that the seeds show, ``s² / S``, which falls with their number.
        by_images: The rest, which it does not.
        rows: How many seeds there are, or searches where these are the top level.
        images: How many test images, as weights have it; infinite where there is no part of theirs.
    """

    by_seeds: float
    by_images: float
    rows: int
    images: float

    def error(self, rows: int | None = None) -> tuple[float, float]:
        """Return the standard error with so many rows, by default those there are, and its degrees of freedom."""
        rows = rows or self.rows
        seeds = self.by_seeds * self.rows / rows
        whole = seeds + self.by_images
        share = seeds / whole if whole > 0 else 1.0
        return math.sqrt(whole), 1 / (share / (rows - 1) + (1 - share) / max(self.images - 1, 1))

    def power(self, effect: float, rows: int | None = None, level: float = 0.975) -> float:
        """Return the chance that a one-sided test at ``1 - level`` finds an effect of this size.

        The noncentral t distribution is taken for a shifted one.

        Example:
            >>> round(Precision(0.25, 0.0, 10, math.inf).power(1.5), 2)
            0.76
        """
        error, freedom = self.error(rows)
        if error == 0:
            return float(effect > 0)
        return float(special.stdtr(freedom, effect / error - t_quantile(freedom, level)))

    def rows_for(self, effect: float, level: float = 0.975) -> int | None:
        """Return how many rows find an effect of this size with a chance of 80 %; None where 10,000 do not.

        Example:
            >>> Precision(0.25, 0.0, 10, math.inf).rows_for(1.5), Precision(0.25, 1.0, 10, 400).rows_for(1.5)
            (11, None)
        """
        if self.power(effect, _MOST, level) < _POWER:
            return None
        low, high = 1, _MOST  # low is too few, high enough
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.power(effect, middle, level) >= _POWER else (middle, high)
        return high
