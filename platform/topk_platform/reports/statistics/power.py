"""The power of an interval, and how many seeds an effect would need to be shown."""

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
    """The parts of a mean's variance: what power and the seeds needed are computed from.

    Args:
        by_seeds: The seeds' part, ``s² / S``, which falls with their number S.
        by_images: The images' part, which more seeds do not make smaller.
        rows: The number of seeds, or of searches if searches are repeated.
        images: The effective number of test images (:class:`ImagePart`'s ``size``); infinite if the images' part is not
            known.
    """

    by_seeds: float
    by_images: float
    rows: int
    images: float

    def error(self, rows: int | None = None) -> tuple[float, float]:
        """Return the standard error and its degrees of freedom with this many rows, by default those that there are."""
        rows = rows or self.rows
        seeds = self.by_seeds * self.rows / rows
        whole = seeds + self.by_images
        share = seeds / whole if whole > 0 else 1.0
        return math.sqrt(whole), 1 / (share / (rows - 1) + (1 - share) / max(self.images - 1, 1))

    def power(self, effect: float, rows: int | None = None, level: float = 0.975) -> float:
        """Return the power of a one-sided test at ``1 - level``: the probability that it finds an effect of this size.

        The noncentral t distribution is approximated by a shifted central one.

        Example:
            >>> round(Precision(0.25, 0.0, 10, math.inf).power(1.5), 2)
            0.76
        """
        error, freedom = self.error(rows)
        if error == 0:
            return float(effect > 0)
        return float(special.stdtr(freedom, effect / error - t_quantile(freedom, level)))

    def rows_for(self, effect: float, level: float = 0.975) -> int | None:
        """Return with how many rows the power for an effect of this size is 80 %; None if 10,000 are too few.

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
