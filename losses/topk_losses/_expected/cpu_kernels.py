r"""CPU kernels of the expected k-th largest: candidates, quadrature and the probability of each class, row by row.

``cpu.py`` has the method and its reasons. Scores x are in units of ε from a centre. Nodes t are on a lattice, in blocks
of T. Values per number m of exceedances and node are stored flat, at index ``m T + j``, so that a sweep's step from m
to m - 1 is one vectorised loop over k T numbers. Tail probabilities are the same for all m and are therefore stored k
times. They are computed from tables of Φ and φ by Taylor series.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from topk_losses._core.numba import compiled
from topk_losses._core.numba_kernels import Doubles, Integers, Keys
from topk_losses._expected.quadrature_kernels import bound as first_above
from topk_losses._expected.quadrature_kernels import points, quadrature, spread
from topk_losses._expected.tails_kernels import (
    BLOCK,
    LEADING,
    LEADING_SPARE,
    Buffers,
    Rules,
    Tables,
    inner,
    summing,
)

__all__ = ["expectations", "levels", "scatter"]


LEAST_DEPTH = 7.0  # all classes down to this depth below the centre are candidates, in units of ε
TOP = 16.0  # where the highest cell of a crowd begins, in units of ε above the centre
NONE: Any = np.int64(0)  # a literal 0 has a type of its own, for which Numba would compile another version


@compiled()
def levels(
    scores: Doubles,
    k: int,
    epsilon: float,
    groups: int,
    depth: float,
    centre: Doubles,
    largest: Doubles,
    rivals: Doubles,
    counts: Integers,
    first: int,
    last: int,
) -> None:
    """Write the results of the first pass for the rows from first to last: the fields of ``cpu.Levels``.

    ``counts`` are the classes down to ``depth`` below the centre; -1 in rows with NaN, +inf or fewer than k classes.
    """
    maxima, sums = np.empty(groups, scores.dtype), np.empty(groups, scores.dtype)
    best = np.empty(k, scores.dtype)
    for row in range(first, last):
        s = scores[row]
        _maxima(s, maxima, sums)
        odd = _best(maxima, sums, best)
        centre[row], largest[row] = best[k - 1], best[0]
        rivals[row] = 0.0
        for m in range(k):
            rivals[row] += math.exp(-LEAST_DEPTH * 0.5 * (best[m] - best[k - 1]) / epsilon)
        counts[row] = -1 if odd else _count(s, centre[row] - epsilon * depth)


@inner
def _maxima(s: Doubles, maxima: Doubles, sums: Doubles) -> None:
    """Write the largest score and the sum of each group; class c is in group ``c mod G``."""
    groups = len(maxima)
    for g in range(groups):
        maxima[g] = s[g]
        sums[g] = s[g]
    for start in range(groups, len(s), groups):
        part = s[start : start + groups]
        for g in range(len(part)):
            v = part[g]
            sums[g] += v  # NaN if the group contains NaN
            maxima[g] = v if v > maxima[g] else maxima[g]


@inner
def _best(maxima: Doubles, sums: Doubles, best: Doubles) -> bool:
    """Write the k largest maxima, descending; return whether there is NaN, +inf, or fewer than k."""
    k = len(best)
    best[:] = -np.inf
    odd = False
    for g in range(len(maxima)):
        v = maxima[g]
        odd |= sums[g] != sums[g] or v == np.inf
        if v > best[k - 1]:
            position = k - 1
            while position > 0 and best[position - 1] < v:
                best[position] = best[position - 1]
                position -= 1
            best[position] = v
    return odd or best[k - 1] == -np.inf


@summing
def _count(s: Doubles, low: float) -> int:
    count = 0
    for c in range(len(s)):
        count += 1 if s[c] >= low else 0
    return count


@compiled(inner=True)
def _buffers(classes: int, swept: int, k: int, cells: int) -> Buffers:
    size = k * BLOCK
    return Buffers(
        np.empty(classes),
        np.empty(swept),
        np.empty(classes),
        np.empty(classes),
        np.empty(classes, np.int64),
        np.empty(cells, np.int64),
        np.empty(swept, np.int64),
        np.empty((swept, size)),
        np.empty((swept, size)),
        np.empty((swept, size + BLOCK)),
        np.empty(size + BLOCK),
        np.empty(size + BLOCK),
        np.empty((k, BLOCK)),
        np.empty((4, BLOCK)),
        np.empty(BLOCK),
        np.empty(swept),
        np.empty(classes),
    )


@inner
def _candidates(s: Doubles, centre: float, epsilon: float, depth: float, x: Doubles, names: Keys) -> int:
    low, total = centre - epsilon * depth, 0
    for c in range(len(s)):
        if s[c] >= low and total < len(names):
            x[total] = (s[c] - centre) / epsilon
            names[total] = c
            total += 1
    return total


@inner
def _kth_far_above(s: Doubles, names: Keys, buffers: Buffers, best: Doubles) -> bool:
    """Whether the k-th largest candidate is far above the centre; if so, write the k largest scores, descending."""
    far, own = 0, buffers.points[: len(names)]
    for i in range(len(names)):
        far += 1 if buffers.x[i] > TOP else 0
    if far < len(best):
        return False
    for i in range(len(names)):
        own[i] = s[names[i]]
    _best(own, own, best)
    return True


@inner
def _kept(total: int, rivals: float, depths: Doubles, x: Doubles, names: Keys) -> int:
    """Keep the candidates within the depth that their actual number allows, and return how many are kept."""
    size = 0
    while size < len(depths) - 1 and 2.0**size < rivals * total:
        size += 1
    kept = 0
    for i in range(total):
        if x[i] >= -depths[size]:
            x[kept] = x[i]
            names[kept] = names[i]
            kept += 1
    return kept


@compiled()
def expectations(
    k: int,
    epsilon: float,
    scores: Doubles,
    centre: Doubles,
    rivals: Doubles,
    offsets: Integers,
    counts: Integers,
    depths: Doubles,
    lattices: tuple[Tables, ...],
    inverse: Doubles,
    rules: Rules,
    with_slope: bool,
    shift: Doubles,
    names: Keys,
    shares: Doubles,
    first: int,
    last: int,
) -> None:
    """Write the expected k-th largest relative to the centre in units of ε, and the candidates' probabilities.

    A centre that is far below the k-th largest score is replaced by it.
    """
    widest = max(1, counts[first:last].max())
    swept = widest if widest <= rules.crowded else max(rules.crowded, LEADING * k + LEADING_SPARE)
    cells = int((rules.depth + TOP) / rules.cell) + 1
    buffers = _buffers(widest, swept, k, cells)
    moments, best = np.empty((cells, len(inverse))), np.empty(k)
    for row in range(first, last):
        total, position, near = counts[row], offsets[row], rivals[row]
        own_names = names[position : position + total]
        _candidates(scores[row], centre[row], epsilon, rules.depth, buffers.x, own_names)
        if _kth_far_above(scores[row], own_names, buffers, best):
            # Nodes start at the centre, so it becomes the k-th largest score itself.
            centre[row], near = best[k - 1], float(k)
            total = _candidates(scores[row], centre[row], epsilon, rules.depth, buffers.x, own_names)
        total = _kept(total, near, depths, buffers.x, own_names)
        counts[row] = total
        if total > rules.crowded:
            bound = first_above(total, k, rules, buffers)
            swept, count = points(total, bound, inverse, moments, rules, buffers)
            mean, step = quadrature(
                buffers.lead, swept, count, total, lattices, k, rules, with_slope, buffers
            )
            if with_slope:
                own = shares[position : position + total]
                spread(total, bound, inverse, moments, step, rules, buffers, own)
        else:
            mean, step = quadrature(buffers.x, total, NONE, total, lattices, k, rules, with_slope, buffers)
            if with_slope:
                for i in range(total):
                    shares[position + i] = buffers.slopes[i] * step
        shift[row] = mean


@compiled()
def scatter(
    names: Keys,
    shares: Doubles,
    offsets: Integers,
    counts: Integers,
    gradient: Doubles,
    out: Doubles,
    first: int,
    last: int,
) -> None:
    """Write each row's probabilities times its gradient to the entries of their classes."""
    for row in range(first, last):
        own = out[row]
        for i in range(offsets[row], offsets[row] + counts[row]):
            own[names[i]] = shares[i] * gradient[row]
