"""The precision of a mean: its test's power, the effects that it can detect, and the seeds that an effect needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy import special

from topk_platform.results.statistics.tests import Part, critical

__all__ = ["Precision"]

_POWER = 0.8
_MOST = 10_000


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
        borrowed: The degrees of freedom that the seeds' part has beyond ``rows - 1``, from other arms' searches.
    """

    by_seeds: float
    by_images: float
    rows: int
    images: float
    groups: float | None = None
    borrowed: float = 0.0

    def parts(self, rows: int | None = None) -> list[Part]:
        """Return the parts of the variance with this many rows, by default the present number."""
        rows = rows or self.rows
        of_images = max(self.images - 1, 1) if self.groups is None else self.groups
        return [
            (self.by_seeds * self.rows / rows, rows - 1 + self.borrowed),
            (self.by_images, of_images),
        ]

    def error(self, rows: int | None = None) -> float:
        """Return the standard error with this many rows, by default the present number."""
        return math.sqrt(sum(variance for variance, _ in self.parts(rows)))

    def critical(self, level: float = 0.975, rows: int | None = None) -> float:
        """Return how many standard errors a one-sided interval at this level reaches from the mean."""
        return critical(self.parts(rows), level)

    def _spread(self, rows: int | None = None) -> float:
        """Return the degrees of freedom of the whole variance: the weighted harmonic mean of those of its parts."""
        parts = self.parts(rows)
        whole = sum(variance for variance, _ in parts)
        return 1 / sum(v / whole / freedom for v, freedom in parts if v > 0)

    def power(self, effect: float, rows: int | None = None, level: float = 0.975) -> float:
        """Return the power of a one-sided test at ``1 - level``: the probability that it finds an effect of this size.

        The noncentral t distribution is approximated by a shifted central one.

        Example:
            >>> round(Precision(0.25, 0.0, 10, math.inf).power(1.5), 2)
            0.76
        """
        error = self.error(rows)
        if error == 0:
            return float(effect > 0)
        shift = effect / error - self.critical(level, rows)
        return float(special.stdtr(self._spread(rows), shift))

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
        return error * (self.critical(level) + float(special.stdtrit(self._spread(), power)))

    def rows_for(self, effect: float, level: float = 0.975, power: float = _POWER) -> int | None:
        """Return how many rows give this power for an effect of this size; None if 10,000 are too few.

        Example:
            >>> Precision(0.25, 0.0, 10, math.inf).rows_for(1.5), Precision(0.25, 1.0, 10, 400).rows_for(1.5)
            (11, None)
        """
        if self.power(effect, _MOST, level) < power:
            return None
        low, high = 1, _MOST  # low rows are too few, high rows are enough
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.power(effect, middle, level) >= power else (middle, high)
        return high

    def scaled(self, scale: float) -> Precision:
        """Return the precision of the mean times ``scale``."""
        return replace(self, by_seeds=self.by_seeds * scale**2, by_images=self.by_images * scale**2)
