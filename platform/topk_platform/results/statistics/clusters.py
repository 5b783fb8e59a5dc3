"""The variance of a mean over images that are drawn in groups, such as typefaces, patients or photographers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Groups"]

Numbers = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


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
            return spread @ self._factors + (self._unknown(rows, means) if self._lone.any() else 0.0)
        scores = self._summed(rows * self._scaled, self.clusters) - means @ self._subtracted.T
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
