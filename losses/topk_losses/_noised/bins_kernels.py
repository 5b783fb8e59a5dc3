"""Bins of a row's classes by their scores, and the types of buffers, for the kernels that draw; see ``cpu.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from topk_losses._core.numba_kernels import inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Doubles: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]
    Booleans: TypeAlias = NDArray[np.bool_]

    # Plain tuples: Numba stores the names of our classes on disk, and would fail if a later version renamed them.
    Tables: TypeAlias = tuple[Doubles, Doubles, Doubles]
    """For the gaps ``g = i WIDTH``: ``1 - Φ((i + 1/2 - BINS) WIDTH)`` for i in ``[0, 2 BINS)``, ``-1 / log Φ(g)`` and
    ``(g + sqrt(g² + 4)) / 2`` for i in ``[0, BINS]``.
    """
    Candidates: TypeAlias = tuple[Integers, Doubles, Integers]
    """The classes of a row that are in bins, their scores in units of ε from the centre, and their bins."""
    Binned: TypeAlias = tuple[Integers, Doubles, Integers]
    """These classes and scores sorted from the highest bin to the lowest, and where each bin starts ``(BINS + 1,)``."""
    Block: TypeAlias = tuple[Doubles, Integers, Integers, Doubles, Integers]
    """Draws side by side, in lanes. Noisy scores of each lane, first those drawn outright; the classes of the others
    and their number; a buffer for the k largest with the k-th largest in its last row ``(k + 1, ·)``; its position.
    """
    Completion: TypeAlias = tuple[Doubles, Booleans, Doubles]
    """The value of every class ``(L,)``, whether it exceeds the threshold ``(L,)``, a buffer for the k largest."""
    Buffers: TypeAlias = tuple[tuple[Floats, Doubles], Candidates, Binned, Integers, Block, Completion]
    """Buffers for one row: group maxima and the k largest of them, then the tuples above, with the bins that are
    thinned ``(4, BINS + 1)`` after ``Binned``.
    """

__all__ = ["ABOVE", "BINS", "OUTRIGHT", "WIDTH", "bin_row", "groups_of", "kth_largest"]

WIDTH = 0.2  # width of a bin, in units of ε
ABOVE = 21  # bins above the centre; the first one has no upper bound
BINS = ABOVE + 31
OUTRIGHT = 3  # bins below the threshold whose classes are drawn outright


DEEPEST = ABOVE + 14  # the lowest threshold is the upper edge of this bin
WHOLE = 24  # in rows of up to this many classes all are drawn outright
MEMBERS = 8  # classes per group; groups are first compared by their maxima
SPARE = 4  # there are at least this many times k groups


@inner
def groups_of(size: int, k: int) -> int:
    """The number of groups that the classes of a row are in, whose maxima are compared first."""
    members = MEMBERS
    while members > 1 and size < SPARE * k * members:
        members //= 2
    return (size + members - 1) // members


@inner
def bin_row(
    row: Floats,
    epsilon: float,
    wanted: float,
    tails: Doubles,
    maxima: Floats,
    largest: Doubles,
    candidates: Candidates,
    binned: Binned,
) -> tuple[float, int]:
    """Sort the classes of a row into bins; return the score at the centre, and the bin of the threshold.

    The centre is NaN in rows with NaN or +inf, and -inf in rows with fewer than k unmasked classes.
    """
    k = len(largest)
    _maximise(row, maxima)
    centre = kth_largest(maxima, largest)
    if centre == -np.inf:  # fewer than k groups have an unmasked class
        centre = kth_largest(row, largest)
    if not centre > -np.inf:
        return centre, BINS
    if len(row) <= WHOLE:
        return centre, _whole(row, centre, epsilon, binned)
    number = _collect(row, maxima, centre, epsilon, candidates)
    if _leading(candidates[1], number) > k:
        for i in range(number):
            candidates[1][i] = row[candidates[0][i]]
        centre = kth_largest(candidates[1][:number], largest)
        number = _collect(row, maxima, centre, epsilon, candidates)
    _order(candidates, number, binned)
    return centre, _threshold(binned[2], wanted, tails)


@inner
def _maximise(row: Floats, maxima: Floats) -> None:
    """Write the largest score of each group, G the number of groups: classes j, j + G, …; NaN if one is NaN."""
    groups = len(maxima)
    for j in range(groups):
        maxima[j] = row[j]
    for first in range(groups, len(row), groups):
        part = row[first : first + groups]
        for j in range(len(part)):
            score = part[j]
            maxima[j] = score if (score > maxima[j]) | (score != score) else maxima[j]  # noqa: PLR0124


@inner
def kth_largest(scores: Floats, largest: Doubles) -> float:
    """The k-th largest score, k being the length of the buffer; NaN if a score is NaN or +inf."""
    last = len(largest) - 1
    largest[:] = -np.inf
    invalid = False
    for score in scores:
        invalid |= not score < np.inf
        if score > largest[last]:
            position = last
            while position > 0 and largest[position - 1] < score:
                largest[position] = largest[position - 1]
                position -= 1
            largest[position] = score
    return np.nan if invalid else largest[last]


@inner
def _collect(row: Floats, maxima: Floats, centre: float, epsilon: float, candidates: Candidates) -> int:
    """Write the classes above the lower edge of the lowest bin, and return their number."""
    classes, x, _ = candidates
    level = centre - (BINS - ABOVE) * WIDTH * epsilon
    groups, number, scale = len(maxima), 0, 1 / epsilon
    for j in range(groups):
        if maxima[j] >= level:
            for c in range(j, len(row), groups):
                classes[number] = c
                x[number] = (row[c] - centre) * scale
                number += row[c] >= level
    return number


@inner
def _leading(x: Doubles, number: int) -> int:
    leading = 0
    for i in range(number):
        leading += x[i] >= 0
    return leading


@inner
def _whole(row: Floats, centre: float, epsilon: float, binned: Binned) -> int:
    """Put all classes into the highest bin, and return a threshold below all bins."""
    classes, x, starts = binned
    for c in range(len(row)):
        classes[c] = c
        x[c] = (row[c] - centre) * (1 / epsilon)
    starts[1:] = len(row)
    starts[0] = 0
    return BINS


@inner
def _order(candidates: Candidates, number: int, binned: Binned) -> None:
    """Sort classes by bins, the highest one first."""
    classes, x, bins = candidates
    sorted_classes, sorted_x, starts = binned
    starts[:] = 0
    for i in range(number):
        bins[i] = min(int(max(ABOVE - x[i] * (1 / WIDTH), 0.0)), BINS - 1)
        starts[bins[i]] += 1
    for j in range(BINS):  # the ends of the bins, which are filled from there
        starts[j + 1] += starts[j]
    for i in range(number):
        position = starts[bins[i]] - 1
        starts[bins[i]] = position
        sorted_classes[position] = classes[i]
        sorted_x[position] = x[i]


@inner
def _threshold(starts: Integers, wanted: float, tails: Doubles) -> int:
    """The highest bin such that at least ``wanted`` classes are expected to exceed its upper edge."""
    low, high = 0, DEEPEST
    if starts[BINS] <= wanted:
        return high
    while low < high:
        edge = (low + high) // 2
        expected = 0.0
        for j in range(BINS):
            expected += (starts[j + 1] - starts[j]) * tails[j - edge + BINS]
        if expected >= wanted:
            high = edge
        else:
            low = edge + 1
    return high
