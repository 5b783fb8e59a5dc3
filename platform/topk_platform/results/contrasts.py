"""Weighted sums of arms' means, such as a difference of two, with every source of luck that the runs show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from topk_platform.own_measures import from_ranks, of_ranks
from topk_platform.records.per_image import Ranks
from topk_platform.references import is_reference
from topk_platform.results.images import ImagePart, image_part
from topk_platform.results.intervals import Estimate, interval, search_of
from topk_platform.results.runs import Parts, Runs, least_variance, sums
from topk_platform.specs import GROUPS, measure_of

__all__ = ["accuracies", "combined", "credit"]

Numbers = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]

_OF_RANKS = ("top", "autkc")
_SAME = 1e-6  # means of the same credits differ by less if they are added in another order


def combined(parts: Parts, metric: str, *, difference: bool = True) -> Estimate | None:
    """Return the estimate of a weighted sum of arms' means, over their common seeds, paired by seed and image.

    Return None if the arms have no common seed.

    The number of searches decides which sources of luck the variance contains:

    - No arm is searched: seeds and images.
    - The searched arms were searched R times, twice or more; a study searches them equally often. The r-th searches of
      all arms, over all regimes of the sum, make one row: they share draw, label noise and first weights. Different
      searches are independent, so the R rows are, and what the r-th searches share cancels out in a difference. The
      variance over the rows counts at least as :func:`~.runs.least_variance`.
    - An arm was searched once, or has results of one search alone: seeds and images, and ``covers`` says "one search".

    Regimes with the same test images are summed image by image, so that the choice of the images enters once. Different
    test images are taken as fully correlated, because they may overlap: their standard errors add up.

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
        _images(list(values), parts, metric, repeated) if known and not of_each else None,
        searches=repeated,
        difference=difference or is_reference(metric),  # a measure of the user's own has no bounds
        drawn=of_each,
        once=once,
        least=least_variance(parts, metric) if repeated > 1 else 0.0,
    )


def _one_search(runs: Runs, values: Mapping[int, float]) -> bool:
    """Return whether the arm is searched and these seeds all come from one search."""
    return runs.searches > 0 and len({search_of(seed, runs.searches) for seed in values}) < 2


def _images(seeds: list[int], parts: Parts, metric: str, searches: int) -> ImagePart | None:
    """Return the images' part of the variance; None if the ranks do not give the metric, or not on the same images."""
    if not (from_ranks(metric) if is_reference(metric) else metric.rpartition("_")[2].startswith(_OF_RANKS)):
        return None  # ranks do not say whether a class is in a prediction set
    sets: dict[str, list[tuple[float, Runs]]] = {}
    for weight, runs in parts:
        sets.setdefault(runs.ranks[seeds[0]].images, []).append((weight, runs))
    result = [_of_test_set(seeds, of_set, metric, searches) for of_set in sets.values()]
    known = [part for part in result if part is not None]
    return ImagePart.together(known) if len(known) == len(result) else None


def _of_test_set(seeds: list[int], parts: Parts, metric: str, searches: int) -> ImagePart | None:
    scored = [(weight, accuracies({s: runs.ranks[s] for s in seeds}, metric)) for weight, runs in parts]
    first = scored[0][1]
    if first is None:
        return None
    _, strata, weights = first
    rows = np.zeros_like(first[0])
    for weight, scores in scored:
        if scores is None or not (np.array_equal(scores[1], strata) and np.array_equal(scores[2], weights)):
            return None
        rows += weight * scores[0]
    each = weights / np.maximum(np.bincount(strata, minlength=len(weights)), 1)
    if not np.allclose(rows @ each[strata], list(sums(parts, metric, seeds).values()), rtol=0, atol=_SAME):
        return None  # the metric has other weights than the ranks
    of_search = [search_of(seed, searches) for seed in seeds] if searches > 1 else None
    part = image_part(rows, strata, weights, of_search, parts[0][1].ranks[seeds[0]].cluster)
    return part if part.known else None


def credit(ranks: Ranks, k: int) -> Numbers:
    """Return each image's top-k accuracy under random tie-breaking, ``clip((k - g) / (t + 1), 0, 1)``."""
    result: Numbers = np.clip((k - ranks.greater) / (ranks.tied + 1), 0, 1)
    return result


def _credit_of(ranks: Ranks, metric: str) -> Numbers:
    """Return each image's credit by an accuracy, or by the area under the top-k curve: the mean over its k."""
    if is_reference(metric):
        return of_ranks(metric, ranks)
    result = measure_of(metric)
    if result is None:
        return credit(ranks, int(metric.rpartition("top")[2]))
    # The sum over k of clip((k - g) / (t + 1), 0, 1), which is 1 for the k above g + t.
    whole = np.clip(result.number - ranks.greater - ranks.tied, 0, None)
    rising = np.clip(result.number - ranks.greater, 0, ranks.tied)
    area: Numbers = (whole + rising * (rising + 1) / 2 / (ranks.tied + 1)) / result.number
    return area


def strata_of(ranks: Ranks, kind: str) -> tuple[Classes, Numbers]:
    """Return each image's class and the classes' weights in an accuracy.

    Args:
        ranks: The ranks of one run.
        kind: ``""`` for the mean over images, ``"macro"`` for the mean over classes, or a group of classes.
    """
    if not kind:
        return np.zeros(len(ranks.label), np.int64), np.ones(1)
    counts = kind == "macro" or ranks.group == 1 + GROUPS.index(kind)
    there = np.bincount(ranks.label, np.broadcast_to(counts, ranks.label.shape)) > 0
    return ranks.label, there / max(there.sum(), 1)


def accuracies(runs: Mapping[int, Ranks], metric: str) -> tuple[Numbers, Classes, Numbers] | None:
    """Return each run's credits, ``(S, n)``, with the images' classes and their weights in a metric.

    Return None if the runs were not tested on the same images, if the metric's group of classes is not the same in all
    runs, or if it is a measure of the user's own without a value for each image.

    Args:
        runs: Ranks by seed.
        metric: The metric, such as ``"top5"``, ``"macro_top3"`` or ``"autkc5"``.
    """
    kind = "" if measure_of(metric) or is_reference(metric) else metric.rpartition("top")[0].rstrip("_")
    result = [runs[seed] for seed in sorted(runs)]
    first = result[0]
    alike = all(run.images == first.images for run in result)
    if kind in GROUPS:
        alike = alike and all(np.array_equal(run.group, first.group) for run in result)
    of_runs = [_credit_of(run, metric) for run in result] if alike else []
    if not of_runs or not of_runs[0].ndim:
        return None
    return np.stack(of_runs), *strata_of(first, kind)
