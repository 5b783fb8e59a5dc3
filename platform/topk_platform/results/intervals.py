"""Means with intervals that say what they cover; with more than one seed, a mean always has an interval."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from topk_platform.results.images import ImagePart
from topk_platform.results.significance import Precision, p_of
from topk_platform.specs import Repeats

__all__ = [
    "ONE_SEARCH",
    "Covers",
    "Estimate",
    "estimate",
    "interval",
    "means_of_searches",
    "search_of",
    "usual_variance",
]

_ENOUGH = 3
ONE_SEARCH = ", one search"
_UNEVEN = 0.2
_ROUNDING = 1e-9  # far below what one sample of any test set is worth

Covers = Literal[
    "seeds",
    "seeds and images",
    "searches and seeds",
    "searches, seeds and images",
    "seeds, one search",
    "seeds and images, one search",
]
"""What an interval covers: the sources of luck that would be drawn again if the study were repeated.

"One search" means that an arm was searched once, so the interval does not cover the luck of its search.
"""


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

        Two values do not show it, nor do values that are all equal: a small test set has few possible accuracies, so
        differences may be equal by chance.
        """
        return self.n >= _ENOUGH and not self.low <= 0 <= self.high and self.has_spread

    @property
    def has_spread(self) -> bool:
        """Whether the interval is wider than values that are equal but for rounding make it."""
        return self.half_width > _ROUNDING

    @property
    def once(self) -> bool:
        """Whether it rests on an arm that was searched once, and leaves out the luck of that search."""
        return self.covers.endswith(ONE_SEARCH)

    def __neg__(self) -> Estimate:
        """Return the estimate of the opposite number."""
        return replace(self, mean=-self.mean, low=-self.high, high=-self.low)

    def within(self, tolerance: float) -> float:
        """Return the p-value of the equivalence test, whose hypothesis is a mean ``tolerance`` or more away from 0.

        It is the larger of the p-values of two one-sided tests with the interval's variance; 1 if there is no spread.

        Source:
            Schuirmann, A Comparison of the Two One-Sided Tests Procedure and the Power Approach, 1987.

        Example:
            >>> round(estimate([0.001, -0.002, 0.002, 0.001, -0.001]).within(0.01), 5)
            9e-05
        """
        if self.precision is None or not self.has_spread or abs(self.mean) >= tolerance:
            return 1.0
        return p_of(tolerance - abs(self.mean), self.precision.parts()) / 2

    @property
    def is_uneven(self) -> bool:
        """Whether the interval's middle lies so far from the mean that only its two ends describe it."""
        return abs((self.low + self.high) / 2 - self.mean) > _UNEVEN * self.half_width


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of ``values``, one per seed, with its 95 % t-interval; None if there are no values.

    Example:
        >>> result = estimate([0.9, 0.92, 0.94])
        >>> round(result.mean, 4), round(result.half_width, 4), result.n
        (0.92, 0.0497, 3)
    """
    return interval(dict(enumerate(values, 1)))


def interval(
    values: Mapping[int, float],
    images: ImagePart | None = None,
    *,
    searches: int = 1,
    difference: bool = False,
    drawn: bool = False,
    once: bool = False,
    least: float = 0.0,
) -> Estimate | None:
    """Return the mean over seeds with its 95 % interval; None if there are no values.

    With ``images`` the interval covers seeds and test images, which are crossed: each seed scores the same images. The
    mean's variance is A + I. ``A = s² / S`` is the part of the seeds, with S - 1 degrees of freedom; if searches are
    repeated, the means over the seeds of each search take the place of the seeds. I is the part of the images, with
    about as many degrees of freedom as there are groups of images (:class:`ImagePart`). The interval reaches ``√(t_A² A
    + t_I² I)`` to both sides: each part keeps its own Student quantile (:func:`~.significance.critical`).

    The interval of an accuracy is the set of all p with ``(mean - p)² ≤ t² (A + φ p (1 - p) / n)``, where
    ``t² = (t_A² A + t_I² I) / (A + I)``. Without A it is Wilson's interval. φ is the images' persistence, times the
    ratio of one run's variance to ``p (1 - p) / n`` if that ratio is above 1. The variance of a difference is increased
    by φ times one image that only one of the two losses gets right. Two losses that agree on every image are then not
    taken as certainly equal (Bonett and Price 2012 add two images).

    Args:
        values: The values by seed; seeds are counted from 1.
        images: The images' part of the variance; None if it is not known.
        searches: How many searches chose configurations; see :func:`search_of`.
        difference: Whether the values are differences of accuracies.
        drawn: Whether every seed has test images of its own, so that the seeds' spread covers the images as well.
        once: Whether an arm was searched once, so that the luck of its search is in no part of the variance.
        least: The least s² that is believed, which few searches may fall below by chance.
    """
    rows = _rows(values, searches)
    if not rows:
        return None
    mean, n = float(np.mean(rows)), len(values)
    covers = _covers(searches > 1, images is not None or drawn, once)
    if len(rows) == 1:
        return Estimate(mean, math.nan, n, covers=covers)
    by_seeds = max(float(np.var(rows, ddof=1)), least) / len(rows)
    precision = Precision(by_seeds, 0.0, len(rows), math.inf)
    if images is not None:
        of_images = images.variance + images.persistence / images.size**2
        precision = Precision(by_seeds, of_images, len(rows), images.size, images.freedom)
    reach, p = precision.critical(), p_of(mean, precision.parts())
    half = reach * precision.error()
    low, high = mean - half, mean + half
    if images is not None and not difference:
        low, high = _accuracies(mean, by_seeds, reach, images)
        half = (high - low) / 2
    return Estimate(mean, half, n, low, high, p, covers, precision)


def search_of(seed: int, searches: int) -> int:
    """Return the index of the search whose choice a confirmation seed trains."""
    return Repeats(searches).search_of_seed(seed)


def means_of_searches(values: Mapping[int, float], searches: int) -> list[float]:
    """Return the mean over the seeds of each search that has any, in the order of the searches."""
    groups: dict[int, list[float]] = defaultdict(list)
    for seed in sorted(values):
        groups[search_of(seed, searches)].append(values[seed])
    return [float(np.mean(groups[search])) for search in sorted(groups)]


def usual_variance(searches: Iterable[Sequence[float]]) -> float:
    """Return the median variance of several arms' searches; 0 if no arm has two searches.

    Args:
        searches: The means of each arm's searches.

    Example:
        >>> round(usual_variance([[0.1, 0.3], [0.1, 0.5], [0.2, 0.2], []]), 6)
        0.02
    """
    result = [float(np.var(means, ddof=1)) for means in searches if len(means) > 1]
    return float(np.median(result)) if result else 0.0


def _rows(values: Mapping[int, float], searches: int) -> list[float]:
    """Return the independent values: those of the seeds, or the means over each search's seeds."""
    if searches == 1:
        return [values[seed] for seed in sorted(values)]
    return means_of_searches(values, searches)


def _covers(searches: bool, images: bool, once: bool) -> Covers:
    if once:
        return "seeds and images, one search" if images else "seeds, one search"
    if searches:
        return "searches, seeds and images" if images else "searches and seeds"
    return "seeds and images" if images else "seeds"


def _accuracies(mean: float, variance: float, t: float, images: ImagePart) -> tuple[float, float]:
    """Return the ends of an accuracy's interval, inside [0, 1]."""
    binomial = mean * (1 - mean) / images.size
    # If classes have weights of their own, the variance may be larger than the binomial one of the same mean.
    stretched = max(images.single / binomial, 1.0) if binomial > 0 else 1.0
    q = t**2 * images.persistence * stretched / images.size
    middle = (mean + q / 2) / (1 + q)
    half = math.sqrt(q * mean * (1 - mean) + q**2 / 4 + t**2 * variance * (1 + q)) / (1 + q)
    return max(middle - half, 0.0), min(middle + half, 1.0)
