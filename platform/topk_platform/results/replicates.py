"""Comparisons that several studies made, pooled; searches that were repeated show the luck of a search."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from topk_platform.results.comparisons import Compared
from topk_platform.results.statistics import Covers, Estimate, Precision, critical, holm, p_of
from topk_platform.results.statistics.tests import Part
from topk_platform.specs.metric_names import accuracy_k

__all__ = ["Luck", "Pooled", "judged", "luck_of", "pooled"]

_LEVEL = 0.05
_LEAST = 3  # seeds that a comparison needs


@dataclass(frozen=True)
class Luck:
    """How much a difference varies if everything is searched and trained again on the same data.

    Args:
        deviation: The standard deviation, pooled over all comparisons that were searched more than once.
        freedom: Its degrees of freedom.
    """

    deviation: float
    freedom: int


@dataclass(frozen=True)
class Pooled:
    """One loss compared with the baseline in one situation, by all studies that made this comparison.

    Args:
        parts: These comparisons.
        ahead: How far the loss is ahead of the baseline. If the luck of the search is known, the interval contains it.
        apart: The distance to the situation asked about.
        mark: The loss's mark after the correction: ``"better"``, ``"worse"`` or empty.
        p_holm: The corrected p-value; None if the luck of the search is not known, or if there is no spread.
    """

    parts: tuple[Compared, ...]
    ahead: Estimate
    apart: float = math.nan
    mark: str = ""
    p_holm: float | None = None

    @property
    def first(self) -> Compared:
        """The first of the comparisons, whose names and values stand for all."""
        return self.parts[0]

    @property
    def loss(self) -> str:
        """The loss's label."""
        return self.first.loss

    @property
    def name(self) -> str:
        """``study: regime/model/loss``, and how many other studies made the same comparison."""
        more = len(self.parts) - 1
        return f"{self.first.name}{f' and {more} more' if more else ''}"

    @property
    def searches(self) -> int:
        """The number of searches of each of the two losses."""
        return sum(part.searches for part in self.parts)


def luck_of(comparisons: Iterable[Compared]) -> dict[int, Luck]:
    """Return, by K, how much differences of top-K accuracy vary from search to search.

    Two things show it: the searches of a study that repeats them, and studies that made the same comparison with one
    search each. The variance is ``Σ_c Σ_j (d_cj - mean_c)² / Σ_c (n_c - 1)`` over comparisons c and their n_c searches
    j. The test images are the same, so their part is not in it; the seeds' part is. Where a study repeats its searches,
    the comparison's share is the one in its interval, which :func:`~.statistics.pooling.moderated` may have enlarged.

    Args:
        comparisons: Comparisons by any metric.
    """
    squares: dict[int, float] = defaultdict(float)
    freedom: dict[int, int] = defaultdict(int)
    for parts in _alike(comparisons):
        k = accuracy_k(parts[0].metric)
        if k is None:
            continue
        for square, degrees in (_between_studies(parts), *map(_between_searches, parts)):
            squares[k] += square
            freedom[k] += degrees
    return {k: Luck(math.sqrt(squares[k] / freedom[k]), freedom[k]) for k in sorted(freedom) if freedom[k]}


def _between_studies(parts: Sequence[Compared]) -> tuple[float, int]:
    """Return the sum of squares between studies that searched once, and its degrees of freedom."""
    values = [part.ahead.mean for part in parts if not _repeated(part)]
    if len(values) < 2:
        return 0.0, 0
    return sum((value - fmean(values)) ** 2 for value in values), len(values) - 1


def _between_searches(part: Compared) -> tuple[float, int]:
    """Return the same between the searches of a study that repeats them."""
    precision = part.ahead.precision
    if precision is None or not _repeated(part):
        return 0.0, 0
    freedom = precision.rows - 1
    return precision.by_seeds * precision.rows * freedom, freedom


def pooled(comparisons: Iterable[Compared], luck: Mapping[int, Luck]) -> list[Pooled]:
    """Return one pooled comparison for each group of equal comparisons.

    The mean is that of the studies. The variance is the mean of the studies' variances, because the images' part is the
    same in all of them, plus the variance of the luck of a search divided by the number of studies. The first and the
    last contain the luck of the seeds, so the interval is slightly too wide. Each part of the variance keeps its own
    Student quantile (:func:`~.statistics.critical`).

    Args:
        comparisons: Comparisons.
        luck: The luck by K, see :func:`luck_of`. If a K is missing, the luck of the next smaller K is used: luck is
            smaller for a larger K.
    """
    return [Pooled(parts, _together(parts, _luck_at(parts[0], luck))) for parts in _alike(comparisons)]


def judged(comparisons: Sequence[Pooled]) -> list[Pooled]:
    """Return comparisons with marks, corrected by Holm's method for all of them; without spread there is no test."""
    known = {i: one.ahead for i, one in enumerate(comparisons) if not math.isnan(one.ahead.p)}
    corrected = holm({i: ahead.p if ahead.has_spread else 1.0 for i, ahead in known.items()})
    return [
        replace(one, p_holm=corrected[i], mark=_mark(one, corrected[i])) if one.ahead.has_spread else one
        for i, one in enumerate(comparisons)
    ]


def _mark(one: Pooled, p: float) -> str:
    """Return the mark; an arm with lost seeds, which would have lowered its mean, is not marked as the better one."""
    if p >= _LEVEL or not one.ahead.excludes_zero or any(part.ahead.n < _LEAST for part in one.parts):
        return ""
    if one.ahead.mean > 0:
        return "" if any(part.cell.confirmed.lost for part in one.parts) else "better"
    return "" if any(part.theirs.lost for part in one.parts) else "worse"


def _alike(comparisons: Iterable[Compared]) -> list[tuple[Compared, ...]]:
    groups: dict[tuple[object, ...], list[Compared]] = {}
    for i, one in enumerate(comparisons):
        same = (one.setup, one.situation, one.metric) if one.setup else (i,)
        groups.setdefault(same, []).append(one)
    return [tuple(group) for group in groups.values()]


def _repeated(one: Compared) -> bool:
    """Return whether a comparison's own interval contains the luck of the search."""
    return one.ahead.covers.startswith("searches")


def _luck_at(one: Compared, luck: Mapping[int, Luck]) -> Luck | None:
    k = accuracy_k(one.metric)
    below = [known for known in luck if k is not None and known <= k]
    return luck[max(below)] if below else None


def _together(parts: Sequence[Compared], luck: Luck | None) -> Estimate:
    estimates, once = [part.ahead for part in parts], [part for part in parts if not _repeated(part)]
    if len(parts) == 1 and not once:
        return estimates[0]
    mean, seeds = fmean(e.mean for e in estimates), sum(e.n for e in estimates)
    covers: Covers = (
        "searches, seeds and images" if all("images" in e.covers for e in estimates) else "searches and seeds"
    )
    if (once and luck is None) or any(e.precision is None for e in estimates):
        return Estimate(mean, math.nan, seeds, covers=covers)
    variances = _variances([e.precision for e in estimates if e.precision is not None])
    if once and luck is not None:
        variances.append((luck.deviation**2 * len(once) / len(parts) ** 2, luck.freedom))
    half = critical(variances) * math.sqrt(sum(variance for variance, _ in variances))
    return Estimate(mean, half, seeds, mean - half, mean + half, p_of(mean, variances), covers)


def _variances(studies: Sequence[Precision]) -> list[Part]:
    """Return the mean of the studies' variances: the seeds' part and the images' part, with their degrees of freedom.

    Each study estimates the seeds' part anew, so that its degrees of freedom add up. The images are the same in all
    studies, so that more studies do not show more of them.
    """
    seeds, images = zip(*(precision.parts() for precision in studies), strict=True)
    return [
        (fmean(variance for variance, _ in seeds), sum(freedom for _, freedom in seeds)),
        (fmean(variance for variance, _ in images), min(freedom for _, freedom in images)),
    ]
