"""Weighted sums of arms' means, such as a difference of two, with every source of luck that the runs show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from topk_platform.results.confirmed_runs import Parts, Runs, least_variance, sums
from topk_platform.results.statistics import (
    Estimate,
    ImagePart,
    accuracies,
    image_part,
    interval,
)
from topk_platform.results.statistics.intervals import search_of

__all__ = ["combined"]

Numbers = np.ndarray[tuple[int, int], np.dtype[np.float64]]

_SAME = 1e-6  # means of the same credits differ by less if they are added in another order


def combined(parts: Parts, metric: str, *, difference: bool = True) -> Estimate | None:
    """Return the estimate of a weighted sum of arms' means, over their common seeds, paired by seed and image.

    Return None if the arms have no common seed.

    The number of searches decides which sources of luck the variance contains:

    - No arm is searched: seeds and images.
    - The searched arms were searched R times, twice or more; a study searches them equally often. A seed trains the
      choice of the same search of each arm (:func:`~.statistics.intervals.search_of`). Different searches are
      independent, so the means over the seeds of each search are R independent values. They contain the luck of all
      searches and the luck of the paired seeds. Their variance counts at least as :func:`least_variance`.
    - An arm was searched once, or has results of one search alone: seeds and images, and ``covers`` says "one search".

    ``Estimate.precision`` has the parts of the variance: ``precision.detectable()`` is the smallest effect that a test
    finds with a power of 80 %.

    Args:
        parts: Weights and runs.
        metric: The test metric.
        difference: Whether the sum is a difference; if not, it is one accuracy, whose interval is inside [0, 1].
    """
    values = sums(parts, metric)
    if not values:
        return None
    once = any(_one_search(runs, values) for _, runs in parts)
    repeated = 1 if once else max(1, *(runs.searches for _, runs in parts))
    known = len(values) > 1 and all(values.keys() <= runs.ranks.keys() for _, runs in parts)
    of_each = known and len({parts[0][1].ranks[seed].images for seed in values}) == len(values)
    return interval(
        values,
        _image_part(values, parts, metric, repeated) if known and not of_each else None,
        searches=repeated,
        difference=difference,
        drawn=of_each,
        once=once,
        least=least_variance(parts, metric) if repeated > 1 else 0.0,
    )


def _one_search(runs: Runs, values: Mapping[int, float]) -> bool:
    """Return whether the arm is searched and these seeds all come from one search."""
    return runs.searches > 0 and len({search_of(seed, runs.searches) for seed in values}) < 2


def _image_part(values: Mapping[int, float], parts: Parts, metric: str, searches: int) -> ImagePart | None:
    """Return the images' part of the variance; None if the ranks do not give the metric, or are of different images."""
    if not metric.rpartition("_")[2].startswith(("top", "autkc")):
        return None  # ranks do not say whether a class is in a prediction set
    result = [(weight, accuracies({s: runs.ranks[s] for s in values}, metric)) for weight, runs in parts]
    first = result[0][1]
    ranks = [runs.ranks[seed] for _, runs in parts for seed in values]
    if first is None or len({one.images for one in ranks}) > 1:
        return None
    _, strata, weights = first
    rows = np.zeros_like(first[0])
    for weight, scored in result:
        if scored is None or not np.array_equal(scored[2], weights):
            return None
        rows += weight * scored[0]
    means = _means(rows, strata, weights)
    if not np.allclose(means, [values[seed] for seed in sorted(values)], rtol=0, atol=_SAME):
        return None
    of_search = [search_of(seed, searches) for seed in sorted(values)] if searches > 1 else None
    part = image_part(rows, strata, weights, of_search, ranks[0].cluster)
    return part if part.known else None


def _means(
    rows: Numbers,
    strata: np.ndarray[tuple[int], np.dtype[np.int64]],
    weights: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    each = weights / np.maximum(np.bincount(strata, minlength=len(weights)), 1)
    result: np.ndarray[tuple[int], np.dtype[np.float64]] = rows @ each[strata]
    return result
