"""Means with their intervals; never a bare mean where there is more than one seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

__all__ = ["Estimate", "estimate", "paired_difference"]


_ENOUGH = 3
_ROUNDING = 1e-9  # far below what one sample of any test set is worth


@dataclass(frozen=True)
class Estimate:
    """A mean and the half-width of its 95 % Student-t interval; NaN for a single value.

    Args:
        mean: The mean.
        half_width: ``t_{0.975, n-1} · s / √n``.
        n: The number of values.
    """

    mean: float
    half_width: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of 0 and can be believed to.

        Two values, or values that are all the same, tell nothing of their spread: accuracies on a small test set are
        few fractions, and differences between them are equal by chance.
        """
        return self.n >= _ENOUGH and abs(self.mean) > self.half_width > _ROUNDING


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of ``values`` with its 95 % t-interval, or None of no values.

    Example:
        >>> found = estimate([0.9, 0.92, 0.94])
        >>> round(found.mean, 4), round(found.half_width, 4), found.n
        (0.92, 0.0497, 3)
    """
    if not values:
        return None
    n = len(values)
    if n == 1:
        return Estimate(float(values[0]), math.nan, 1)
    spread = float(np.std(values, ddof=1)) / math.sqrt(n)
    return Estimate(float(np.mean(values)), float(special.stdtrit(n - 1, 0.975)) * spread, n)


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """Return the mean of ours minus theirs over the seeds that both have, with its interval.

    Example:
        >>> paired_difference({1: 0.9, 2: 0.8, 3: 0.7}, {1: 0.8, 2: 0.7}).n
        2
    """
    seeds = sorted(ours.keys() & theirs.keys())
    return estimate([ours[seed] - theirs[seed] for seed in seeds])
