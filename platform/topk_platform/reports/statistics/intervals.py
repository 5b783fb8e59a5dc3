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
from topk_platform.specs import Repeats

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
"""What an interval covers: everything that would be drawn anew if the study were repeated."""


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval; NaN for a single value.

    Args:
        mean: The mean.
        half_width: Half the interval's width: ``t_{0.975, n-1} · s / √n`` if it covers seeds alone.
        n: The number of seeds.
        low: The interval's lower end. An accuracy's interval near 0 or 1 reaches further towards the middle.
        high: Its upper end.
        p: Two-sided p-value of the hypothesis that the mean is 0, by the interval's variance and degrees of freedom.
        covers: What the interval covers.
        precision: The variances that the width comes from; None for a single value.
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
        """Whether the interval lies on one side of 0, and comes from values that show their spread.

        Two values do not, nor do values that are all equal: on a small test set there are few possible accuracies, and
        differences of them may be equal by chance.
        """
        return self.n >= _ENOUGH and not self.low <= 0 <= self.high and self.half_width > _ROUNDING

    @property
    def skew(self) -> float:
        """How far the interval's middle lies from the mean."""
        return (self.low + self.high) / 2 - self.mean


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of ``values``, one per seed, with its 95 % t-interval; None if there are no values.

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
    """Return the mean over seeds with its 95 % interval; None if there are no values.

    With ``images`` the interval covers seeds and test images, which are crossed: each seed scores the same images. The
    mean's variance is A + I, where ``A = s² / S`` is the part of the seeds and I that of the images
    (:class:`ImagePart`). With the seeds' share ``w = A / (A + I)``, the degrees of freedom ν follow from
    ``1/ν = w / (S - 1) + (1 - w) / (n - 1)``. Satterthwaite's formula has w² in place of w; with three seeds its
    intervals cover the truth in only 92 % of the studies in which both parts matter (``docs/statistics.md`` has the
    simulation). The interval of an accuracy is the set of all p with ``(mean - p)² ≤ t² (A + φ p (1 - p) / n)``, which
    is Wilson's without the seeds' part; φ is the images' persistence. The variance of a difference is increased by φ
    times one image that only one of the two losses gets right, so that two losses that agree on every image are not
    taken as certainly equal (Bonett and Price 2012 add two).

    Repeated searches are the top level: the means over the seeds of each search then take the place of the seeds.

    Args:
        values: By seed, counted from 1.
        images: The images' part of the variance; None if it is not known.
        searches: How many searches chose configurations; see :func:`search_of`.
        difference: Whether the values are differences of accuracies.
        drawn: Whether every seed has test images of its own, so that the seeds' spread covers the images as well.
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
    """Return which search's choice a confirmation seed has trained."""
    return Repeats(searches).search_of_seed(seed)


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
