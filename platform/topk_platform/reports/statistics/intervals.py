"""Means with their intervals, which say what they cover; never a bare mean where there is more than one seed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from topk_platform.reports.statistics.images import ImagePart
from topk_platform.reports.statistics.power import Precision
from topk_platform.reports.statistics.tests import p_of, t_quantile

__all__ = [
    "Covers",
    "Estimate",
    "estimate",
    "interval",
    "paired",
    "paired_difference",
    "search_of",
    "t_quantile",
]

_ENOUGH = 3
_ROUNDING = 1e-9  # far below what one sample of any test set is worth

Covers = Literal["seeds", "seeds and images", "searches and seeds", "searches, seeds and images"]
"""What would come out otherwise if a study were done again, and is in the interval."""


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval; NaN for a single value.

    Args:
        mean: The mean.
        half_width: Half the interval's length: ``t_{0.975, n-1} · s / √n`` where it covers seeds alone.
        n: The number of seeds.
        low: The interval's lower end. Near 0 and 1 it is longer towards the middle.
        high: Its upper end.
        p: Two-sided p-value of the mean being 0, by the same variance and degrees of freedom.
        covers: What the interval covers.
        precision: What its length comes from; None of a single value.
    """

    mean: float
    half_width: float
    n: int
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    covers: Covers = "seeds"
    precision: Precision | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of 0 and can be believed to.

        Two values, or values that are all the same, tell nothing of their spread: accuracies on a small test set are
        few fractions, and differences between them are equal by chance.
        """
        return self.n >= _ENOUGH and not self.low <= 0 <= self.high and self.half_width > _ROUNDING

    @property
    def skew(self) -> float:
        """How far the interval's middle lies from the mean."""
        return (self.low + self.high) / 2 - self.mean


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of ``values``, one of each seed, with its 95 % t-interval, or None of no values.

    Example:
        >>> found = estimate([0.9, 0.92, 0.94])
        >>> round(found.mean, 4), round(found.half_width, 4), found.n
        (0.92, 0.0497, 3)
    """
    return interval(dict(enumerate(values, 1)))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """Return ours minus theirs for the seeds that both have."""
    return {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """Return the mean of ours minus theirs over the seeds that both have, with its t-interval.

    Example:
        >>> paired_difference({1: 0.9, 2: 0.8, 3: 0.7}, {1: 0.8, 2: 0.7}).n
        2
    """
    return interval(paired(ours, theirs))


def interval(
    values: Mapping[int, float],
    images: ImagePart | None = None,
    *,
    searches: int = 1,
    difference: bool = False,
    drawn: bool = False,
) -> Estimate | None:
    """Return the mean over seeds with its 95 % interval, or None of no values.

    With ``images`` the interval covers seeds and test images, crossed: each seed scores the same images. With A the
    variance of the mean that the seeds show, ``s² / S``, and I the :class:`ImagePart`'s, the mean's variance is A + I,
    and with the seeds' share ``w = A / (A + I)`` the degrees of freedom are ν in
    ``1/ν = w / (S - 1) + (1 - w) / (n - 1)``. Satterthwaite's have w² in place of w, with which three seeds cover
    92 % where both parts are felt; ``docs/statistics.md`` has the simulation. The interval of an accuracy solves
    ``(mean - p)² ≤ t² (A + φ p (1 - p) / n)`` for p, as Wilson's does without seeds; φ is the images' persistence. To
    the variance of a difference as much as an image is added that one of both alone has right, times φ, so that two
    losses that agree on all images are not certain to be equal (as Bonett and Price 2012, who add two).

    Repeated searches are the top level: what is said here of seeds is then said of the means of each search's seeds,
    of which there are few.

    Args:
        values: By seed, counted from 1.
        images: What the test images add; None where that is not known.
        searches: How many searches chose the configurations; seed s has that of search ``(s - 1) % searches``.
        difference: Whether the values are differences of accuracies.
        drawn: Whether every seed has test images of its own, which its value then covers.
    """
    rows = _rows(values, searches)
    if not rows:
        return None
    mean, n = float(np.mean(rows)), len(values)
    if len(rows) == 1:
        return Estimate(mean, math.nan, n)
    found = _precision(rows, images)
    error, freedom = found.error()
    half = t_quantile(freedom) * error
    low, high = mean - half, mean + half
    if images is not None and not difference:
        low, high = _accuracies(mean, found.by_seeds, freedom, images)
    covers = _covers(searches > 1, images is not None or drawn)
    return Estimate(mean, (high - low) / 2, n, low, high, p_of(mean, error**2, freedom), covers, found)


def _precision(rows: Sequence[float], images: ImagePart | None) -> Precision:
    by_seeds = float(np.var(rows, ddof=1)) / len(rows)
    if images is None:
        return Precision(by_seeds, 0.0, len(rows), math.inf)
    return Precision(by_seeds, images.variance + images.persistence / images.size**2, len(rows), images.size)


def search_of(seed: int, searches: int) -> int:
    """Return which search's choice a confirmation seed, counted from 1, has trained."""
    return (seed - 1) % searches


def _rows(values: Mapping[int, float], searches: int) -> list[float]:
    """Return what varies from one repetition to the next: the seeds' values, or the means of the searches' seeds."""
    if searches == 1:
        return [values[seed] for seed in sorted(values)]
    groups: dict[int, list[float]] = defaultdict(list)
    for seed in sorted(values):
        groups[search_of(seed, searches)].append(values[seed])
    return [float(np.mean(groups[search])) for search in sorted(groups)]


def _covers(searches: bool, images: bool) -> Covers:
    if searches:
        return "searches, seeds and images" if images else "searches and seeds"
    return "seeds and images" if images else "seeds"


def _accuracies(mean: float, variance: float, freedom: float, images: ImagePart) -> tuple[float, float]:
    """Return the ends of an accuracy's interval, inside [0, 1]."""
    t = t_quantile(freedom)
    q = t**2 * images.persistence / images.size
    middle = (mean + q / 2) / (1 + q)
    half = math.sqrt(q * mean * (1 - mean) + q**2 / 4 + t**2 * variance * (1 + q)) / (1 + q)
    return max(middle - half, 0.0), min(middle + half, 1.0)
