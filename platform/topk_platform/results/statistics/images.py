"""The part of the variance of a mean accuracy over seeds that comes from the choice of the test images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from topk_platform.records import Ranks
from topk_platform.results.statistics.clusters import Groups
from topk_platform.specs import GROUPS, measure_of

__all__ = ["ImagePart", "accuracies", "credit", "image_part", "strata_of"]

Numbers = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]

_ADDED = 0.25


@dataclass(frozen=True)
class ImagePart:
    """The part of a mean accuracy's variance that comes from the choice of the test images.

    The images are drawn in groups, such as typefaces or patients; without groups each image is one. ``B`` is the
    cluster-robust variance of a mean over images (:class:`Groups`), computed from the images' means over the seeds.
    ``C`` is the part of B that is due to errors of single runs, which differ from seed to seed.

    Args:
        variance: The images' own part, ``max(B - C, 0)``.
        single: The variance that one run's mean would have if its images were independent. Without groups it equals
            ``variance`` if all seeds get the same images wrong.
        size: The effective number of images, ``1 / Σ_c (W_c² / n_c)``: their number if all have the same weight.
        freedom: The degrees of freedom of ``variance``: the number of groups less 1, or fewer where they are unequal.
        known: Whether there is a class with images in two groups or more. Without one, ``variance`` is 0 because
            nothing shows how groups differ.
    """

    variance: float
    single: float
    size: float
    freedom: float
    known: bool

    @property
    def persistence(self) -> float:
        """How far errors depend on the image: 1 if all seeds get the same images wrong, 0 if errors are independent.

        If the images of a group tend to be right or wrong together, it is larger by the design effect.

        Few wrong images give a poor estimate, and none give no estimate. So a quarter of an image that all seeds get
        wrong is added: in simulated studies, intervals then cover the truth best.
        """
        added = _ADDED / self.size**2
        return (self.variance + added) / (self.single + added)


def image_part(
    runs: Numbers,
    strata: Classes | None = None,
    weights: Numbers | None = None,
    searches: Sequence[int] | None = None,
    clusters: Classes | None = None,
) -> ImagePart:
    """Return the images' part of the variance of a weighted mean over seeds and images.

    The effects of seeds and images are random and crossed, ``x_si = μ + a_s + b_i + e_si``. Where classes have weights
    of their own, images count as drawn within their classes. A class with one image, or with all images in one group,
    gets the mean variance of the other classes.

    Args:
        runs: The credit of each image with each of two or more seeds, ``(S, n)``.
        strata: Each image's class, ``(n,)``; by default all are of one class.
        weights: Each class's weight; they sum to 1. Images of classes with weight 0 do not count.
        searches: Each seed's search, ``(S,)``, if there were two or more. Then the means of the searches, in place of
            the seeds, are crossed with the images.
        clusters: Each image's group, ``(n,)``; by default each image is drawn alone.

    Source:
        Searle, Casella and McCulloch, Variance Components, 1992, section 4.3; for groups Bell and McCaffrey 2002.

    Example:
        >>> part = image_part(np.array([[1.0, 1, 0, 0], [1, 1, 0, 0]]))
        >>> round(part.variance, 4), part.size, part.persistence, part.freedom
        (0.0833, 4.0, 1.0, 3.0)
    """
    weights = np.ones(1) if weights is None else weights
    strata = np.zeros(runs.shape[1], np.int64) if strata is None else strata
    alone = Groups.of(strata, weights)
    drawn = alone if clusters is None else Groups.of(strata, weights, clusters)
    rows = runs if searches is None else _means_of_searches(runs, searches)
    within = float(drawn.variances(rows).mean())
    between = float(drawn.variances(rows.mean(0, keepdims=True))[0])
    single = within if rows is runs and drawn is alone else float(alone.variances(runs).mean())
    errors = (within - between) / (len(rows) - 1)
    return ImagePart(max(between - errors, 0.0), single, alone.size, drawn.freedom, drawn.known)


def credit(ranks: Ranks, k: int) -> Numbers:
    """Return each image's top-k accuracy under random tie-breaking, ``clip((k - g) / (t + 1), 0, 1)``."""
    result: Numbers = np.clip((k - ranks.greater) / (ranks.tied + 1), 0, 1)
    return result


def _credit_of(ranks: Ranks, metric: str) -> Numbers:
    """Return each image's credit by an accuracy, or by the area under the top-k curve: the mean over its k."""
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

    Return None if the runs were not tested on the same images, or if the metric's group of classes is not the same in
    all runs.

    Args:
        runs: Ranks by seed.
        metric: The metric, such as ``"top5"``, ``"macro_top3"`` or ``"autkc5"``.
    """
    kind = "" if measure_of(metric) else metric.rpartition("top")[0].rstrip("_")
    result = [runs[seed] for seed in sorted(runs)]
    first = result[0]
    alike = all(run.images == first.images for run in result)
    if kind in GROUPS:
        alike = alike and all(np.array_equal(run.group, first.group) for run in result)
    if not alike:
        return None
    return np.stack([_credit_of(run, metric) for run in result]), *strata_of(first, kind)


def _means_of_searches(runs: Numbers, searches: Sequence[int]) -> Numbers:
    return np.stack([runs[np.equal(searches, search)].mean(0) for search in sorted(set(searches))])
