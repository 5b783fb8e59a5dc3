"""The part of a mean's variance that comes from the choice of the test images, drawn alone or in groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Groups", "ImagePart", "image_part"]

Numbers = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

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

    @classmethod
    def together(cls, parts: Sequence[ImagePart]) -> ImagePart:
        """Return the part of a sum over several test sets, taken as fully correlated: standard errors add up."""
        if len(parts) == 1:
            return parts[0]
        variance, single = (
            sum(math.sqrt(getattr(part, name)) for part in parts) ** 2 for name in ("variance", "single")
        )
        size, freedom = (min(getattr(part, name) for part in parts) for name in ("size", "freedom"))
        return cls(variance, single, size, freedom, all(part.known for part in parts))


def image_part(
    runs: Numbers,
    strata: Whole | None = None,
    weights: Numbers | None = None,
    searches: Sequence[int] | None = None,
    clusters: Whole | None = None,
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


def _means_of_searches(runs: Numbers, searches: Sequence[int]) -> Numbers:
    return np.stack([runs[np.equal(searches, search)].mean(0) for search in sorted(set(searches))])


@dataclass(frozen=True, eq=False)
class Groups:
    """The images of a test set, with their weighted classes and the groups in which the images are drawn.

    The mean ``Σ_i u_i x_i`` has ``u_i = W_c / n_c`` for an image of class c. Its variance is estimated by ``Σ_g z_g²``
    over the groups g, where ``z_g = Σ_{i in g} u_i f_i (x_i - x̄_c)``. The factor ``f_i = (1 - n_cg / n_c)^(-1/2)``
    is needed because the class means are estimated; without groups it turns ``n`` into ``n - 1``. This is CR2, the
    small-sample form of the cluster-robust variance. For class means it needs no matrices.

    Args:
        strata: Each image's class, ``(n,)``.
        clusters: Each image's group, numbered from 0, ``(n,)``.
        counts: The number of images of each class.
        weights: Each class's weight.
        cells: Each image's class and group as one number, ``(n,)``, and how many images each has; None where each
            image is a group of its own.

    Source:
        Bell and McCaffrey, Bias Reduction in Standard Errors for Linear Regression with Multi-Stage Samples, 2002.
    """

    strata: Whole
    clusters: Whole
    counts: Whole
    weights: Numbers
    cells: tuple[Whole, Whole] | None

    @classmethod
    def of(cls, strata: Whole, weights: Numbers, clusters: Whole | None = None) -> Groups:
        """Return the groups of a test set; without ``clusters`` each image is a group of its own."""
        counts = np.bincount(strata, minlength=len(weights))
        if clusters is None:
            return cls(strata, np.arange(len(strata)), counts, weights, None)
        numbered = np.unique(clusters, return_inverse=True)[1]
        cell = np.unique(strata * (int(numbered.max()) + 1) + numbered, return_inverse=True)[1]
        return cls(strata, numbered, counts, weights, (cell, np.bincount(cell)))

    @cached_property
    def _shares(self) -> Numbers:
        """The weight of each image in the mean, ``(n,)``; 0 for images of classes that do not count."""
        result: Numbers = (self.weights / np.maximum(self.counts, 1))[self.strata]
        return result

    @property
    def known(self) -> bool:
        """Whether a class that counts has images in two groups or more, and so shows how groups differ."""
        return bool((self._left[self._shares > 0] > 0).any())

    @property
    def size(self) -> float:
        """The effective number of images, ``1 / Σ u_i²``; infinite if no image counts."""
        total = float((self._shares**2).sum())
        return 1 / total if total else math.inf

    @cached_property
    def _left(self) -> Numbers:
        """The part of an image's class that is outside of its group, ``1 - n_cg / n_c``, ``(n,)``."""
        size: Any = 1 if self.cells is None else self.cells[1][self.cells[0]]
        result: Numbers = 1 - size / self.counts[self.strata]
        return result

    @cached_property
    def _scaled(self) -> Numbers:
        """``u_i f_i``; 0 for a class with all its images in one group, which does not show how groups differ."""
        some = self._left > 0
        return np.where(some, self._shares / np.sqrt(np.where(some, self._left, 1)), 0.0)

    def variances(self, rows: Numbers) -> Numbers:
        """Return the estimated variance of the mean of each row of values, ``(R, n)``."""
        if len(self.weights) == 1 and self.cells is None:  # five times as fast
            alone: Numbers = rows.var(1, ddof=1) / rows.shape[1] if rows.shape[1] > 1 else np.zeros(len(rows))
            return alone
        means = self._summed(rows, self.strata, len(self.counts)) / np.maximum(self.counts, 1)
        if self.cells is None:
            squares = self._summed(rows * rows, self.strata, len(self.counts))
            spread = np.maximum(squares - self.counts * means**2, 0)
            known: Numbers = (spread * self._factors).sum(1)
            return known + self._unknown(rows, means) if self._lone.any() else known
        # Products of matrices would depend in the last digit on the processor, for which NumPy's BLAS has own kernels.
        own = np.einsum("rc,gc->rg", means, self._subtracted)
        scores = self._summed(rows * self._scaled, self.clusters) - own
        result: Numbers = (scores**2).sum(1)
        return result + self._unknown(rows, means) if self._lone.any() else result

    @cached_property
    def _factors(self) -> Numbers:
        """The square of each class's ``u f``, ``(C,)``, where each image is a group of its own."""
        some = np.maximum(self.counts, 2)
        return np.where(self.counts > 1, self.weights**2 / some / (some - 1), 0.0)

    @cached_property
    def _subtracted(self) -> Numbers:
        """How much of each class's mean is subtracted from each group's score, ``(G, C)``."""
        groups, classes = int(self.clusters.max()) + 1, len(self.counts)
        each = np.bincount(self.clusters * classes + self.strata, self._scaled, groups * classes)
        result: Numbers = each.reshape(groups, classes).astype(np.float64)
        return result

    @staticmethod
    def _summed(rows: Numbers, labels: Whole, least: int = 0) -> Numbers:
        return np.stack([np.bincount(labels, row, least) for row in rows])

    @cached_property
    def _lone(self) -> npt.NDArray[np.bool_]:
        """Whether each class counts and has all its images in one group, ``(C,)``."""
        return self._single & (self.weights > 0)

    @cached_property
    def _single(self) -> npt.NDArray[np.bool_]:
        """Whether each class has images, all of them in one group, ``(C,)``."""
        result = self.counts > 0
        result[self.strata[self._left > 0]] = False
        return result

    def _unknown(self, rows: Numbers, means: Numbers) -> Numbers:
        """Return the variance that lone classes add, estimated by the mean variance of the other classes."""
        known = ~self._single & (self.counts > 0)
        if not known.any():
            return np.zeros(len(rows))
        each = self._class_variances(rows - means[:, self.strata])[:, known] * self.counts[known]
        mean = np.average(each, axis=1, weights=self.counts[known])
        result: Numbers = mean * (self.weights[self._lone] ** 2 / self.counts[self._lone]).sum()
        return result

    def _class_variances(self, centred: Numbers) -> Numbers:
        """Return the variance of each class's mean, ``(R, C)``, as if it were alone."""
        some = np.where(self._left > 0, self._left, 1)
        scaled = centred / np.sqrt(some) / self.counts[self.strata]
        if self.cells is None:
            return self._summed(scaled**2, self.strata, len(self.counts))
        cell, size = self.cells
        owner = np.zeros(len(size), np.int64)
        owner[cell] = self.strata
        return self._summed(self._summed(scaled, cell, len(size)) ** 2, owner, len(self.counts))

    @cached_property
    def freedom(self) -> float:
        """The degrees of freedom of the variance, by Satterthwaite, if the images of a group were all alike.

        G groups of the same weight have ``G - 1`` degrees of freedom; there are fewer if a few groups have most of the
        weight. With b for the values of the G groups, the scores are ``M b``, and the degrees of freedom are
        ``tr(MMᵀ)² / tr(MMᵀMMᵀ)``.

        Source:
            Imbens and Kolesár, Robust Standard Errors in Small Samples, 2016.
        """
        if self.cells is None and len(self.weights) == 1:
            return max(len(self.strata) - 1.0, 1.0)
        q = np.bincount(self.clusters, self._shares)
        q = q[q > 0]
        if len(q) < 2:
            return 1.0
        h, whole = q**2 / (1 - q), float((q**2).sum())
        sums = [float((h * q**power).sum()) for power in range(3)]
        own = 1 - 2 * q + whole
        trace = float((h * own).sum())
        square = (
            float((h**2 * (own**2 - (whole - 2 * q) ** 2)).sum())
            + (whole * sums[0]) ** 2
            + 2 * sums[0] * sums[2]
            - 4 * whole * sums[0] * sums[1]
            + 2 * sums[1] ** 2
        )
        return max(trace**2 / square, 1.0)
