"""CPU kernels that draw for the noised top-K operator; ``cpu.py`` has the method and its proof."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from topk_losses._core.numba_kernels import entry, inner

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
    Found: TypeAlias = tuple[Integers, Doubles, Integers]
    """The classes of a row that are in bins, their scores in units of ε from the centre, and their bins."""
    Binned: TypeAlias = tuple[Integers, Doubles, Integers]
    """These classes and scores sorted from the highest bin to the lowest, and where each bin starts ``(BINS + 1,)``."""
    Block: TypeAlias = tuple[Doubles, Integers, Integers, Doubles, Integers]
    """Draws side by side, in lanes. Noisy scores of each lane, first those drawn outright; the classes of the others
    and their number; a buffer for the k largest with the k-th largest in its last row ``(k + 1, ·)``; its position.
    """
    Completion: TypeAlias = tuple[Doubles, Booleans, Doubles]
    """The value of every class ``(L,)``, whether it exceeds the threshold ``(L,)``, a buffer for the k largest."""
    Buffers: TypeAlias = tuple[tuple[Floats, Doubles], Found, Binned, Integers, Block, Completion]
    """Buffers for one row: group maxima and the k largest of them, then the tuples above, with the bins that are
    thinned ``(4, BINS + 1)`` after ``Binned``.
    """

__all__ = ["buffers_for", "draw_rows", "generator", "tables"]

WIDTH = 0.2  # width of a bin, in units of ε
ABOVE = 21  # bins above the centre; the first one has no upper bound
BINS = ABOVE + 31
DEEPEST = ABOVE + 14  # the lowest threshold is the upper edge of this bin
OUTRIGHT = 3  # bins below the threshold whose classes are drawn outright
WHOLE = 24  # in rows of up to this many classes all are drawn outright
MEMBERS = 8  # classes per group; groups are first compared by their maxima
SPARE = 4  # there are at least this many times k groups
MOST_LANES = 64  # draws made side by side
LANES_SCORES = 2**21  # the most scores in all lanes together
FAR = 2.0**62  # more cells than any call has


def generator(seed: int, part: int) -> np.random.Generator:
    """The random generator for one part of a seed's rows."""
    return np.random.Generator(np.random.SFC64([seed, part]))


@functools.cache
def tables() -> Tables:
    """The tables that depend only on the bins."""
    gaps = [i * WIDTH for i in range(BINS + 1)]
    return (
        np.array([_tail_probability((i + 0.5 - BINS) * WIDTH) for i in range(2 * BINS)]),
        np.array([-1 / math.log1p(-_tail_probability(gap)) for gap in gaps]),
        np.array([(gap + math.sqrt(gap * gap + 4)) / 2 for gap in gaps]),
    )


def _tail_probability(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def buffers_for(scores: Floats, k: int, samples: int) -> Buffers:
    """Buffers for one thread."""
    size, lanes = scores.shape[1], max(8, min(samples, MOST_LANES, LANES_SCORES // scores.shape[1]))
    largest = np.empty(k)
    found = np.empty(size, np.int64), np.empty(size), np.empty(size, np.int64)
    binned = np.empty(size, np.int64), np.empty(size), np.empty(BINS + 1, np.int64)
    block = (
        np.empty((2 * size, lanes)),
        np.empty((size, lanes), np.int64),
        np.empty(lanes, np.int64),
        np.empty((k + 1, lanes)),
        np.empty(lanes, np.int64),
    )
    completion = np.empty(size), np.empty(size, np.bool_), largest
    search = np.empty(_groups(size, k), scores.dtype), largest
    return search, found, binned, np.empty((4, BINS + 1), np.int64), block, completion


@entry
def draw_rows(
    scores: Floats,
    k: int,
    epsilon: float,
    wanted: float,
    gap_tables: Tables,
    rng: np.random.Generator,
    buffers: Buffers,
    classes: Integers,
    noise: Floats,
) -> None:
    """Write the classes ``(N, B)`` of the k-th largest and their mean noise ``(N,)``, for scores ``(N, L)``.

    The noise is NaN in rows with NaN or +inf, and -inf in rows with fewer than k unmasked classes; classes are then -1.
    """
    (maxima, largest), found, binned, tiers, block, completion = buffers
    size = scores.shape[1]
    for n in range(len(scores)):
        row = scores[n]
        _maximise(row, maxima)
        centre = _kth_largest(maxima, largest)
        if centre == -np.inf:  # fewer than k groups have an unmasked class
            centre = _kth_largest(row, largest)
        if not centre > -np.inf:
            classes[n], noise[n] = -1, centre
            continue
        if size <= WHOLE:
            edge = _whole(row, centre, epsilon, binned)
        else:
            number = _collect(row, maxima, centre, epsilon, found)
            if _leading(found[1], number) > k:
                for i in range(number):
                    found[1][i] = row[found[0][i]]
                centre = _kth_largest(found[1][:number], largest)
                number = _collect(row, maxima, centre, epsilon, found)
            _order(found, number, binned)
            edge = _threshold(binned[2], wanted, gap_tables[0])
        noise[n] = _draw(
            row, centre, epsilon, edge, binned, gap_tables, tiers, rng, block, completion, classes[n]
        )


def _groups(size: int, k: int) -> int:
    members = MEMBERS
    while members > 1 and size < SPARE * k * members:
        members //= 2
    return (size + members - 1) // members


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
def _kth_largest(scores: Floats, largest: Doubles) -> float:
    """The k-th largest score, k being the length of the buffer; NaN if a score is NaN or +inf."""
    last = len(largest) - 1
    largest[:] = -np.inf
    strange = False
    for score in scores:
        strange |= not score < np.inf
        if score > largest[last]:
            place = last
            while place > 0 and largest[place - 1] < score:
                largest[place] = largest[place - 1]
                place -= 1
            largest[place] = score
    return np.nan if strange else largest[last]


@inner
def _collect(row: Floats, maxima: Floats, centre: float, epsilon: float, found: Found) -> int:
    """Write the classes above the lower edge of the lowest bin, and return their number."""
    classes, x, _ = found
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
def _order(found: Found, number: int, binned: Binned) -> None:
    """Sort classes by bins, the highest one first."""
    classes, x, bins = found
    sorted_classes, sorted_x, starts = binned
    starts[:] = 0
    for i in range(number):
        bins[i] = min(int(max(ABOVE - x[i] * (1 / WIDTH), 0.0)), BINS - 1)
        starts[bins[i]] += 1
    for j in range(BINS):  # the ends of the bins, which are filled from there
        starts[j + 1] += starts[j]
    for i in range(number):
        place = starts[bins[i]] - 1
        starts[bins[i]] = place
        sorted_classes[place] = classes[i]
        sorted_x[place] = x[i]


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


@inner
def _draw(
    row: Floats,
    centre: float,
    epsilon: float,
    edge: int,
    binned: Binned,
    gap_tables: Tables,
    tiers: Integers,
    rng: np.random.Generator,
    block: Block,
    completion: Completion,
    classes: Integers,
) -> float:
    """Write the classes ``(B,)`` of the draws of a row, and return the mean noise."""
    level = centre - (BINS - ABOVE) * WIDTH * epsilon
    u, scale = (ABOVE - edge) * WIDTH if edge < BINS else -np.inf, 1 / epsilon
    _, spans, slopes = gap_tables
    sorted_classes, x, starts = binned
    values, others, heights, extremes, places = block
    outright = starts[min(edge + OUTRIGHT, BINS)]
    lower = _tiers(starts, edge, spans, rng, tiers)
    rest = _skip(rng, spans[BINS - edge]) if starts[BINS] < len(row) else int(FAR)
    samples, kth = len(classes), len(extremes) - 1
    total = 0.0
    most = len(heights)
    for first in range(0, samples, most):
        lanes = min(most, samples - first)
        for i in range(outright):
            for lane in range(lanes):
                values[i, lane] = x[i] + rng.standard_normal()
        heights[:] = 0
        height = outright
        for t in range(lower):
            start, count, gap, cell = tiers[0, t], tiers[1, t], tiers[2, t], tiers[3, t]
            while cell < lanes * count:
                lane = cell // count
                place = start + cell - lane * count
                value = x[place] + _tail(rng, gap * WIDTH, slopes[gap])
                if value > u:
                    height = _put(
                        values, others, heights, lane, outright, height, value, sorted_classes[place]
                    )
                cell += 1 + _skip(rng, spans[gap])
            tiers[3, t] = cell - lanes * count
        gap = BINS - edge
        while rest < lanes * len(row):
            lane = rest // len(row)
            c = rest - lane * len(row)
            if row[c] < level:
                value = (row[c] - centre) * scale + _tail(rng, gap * WIDTH, slopes[gap])
                if value > u:
                    height = _put(values, others, heights, lane, outright, height, value, c)
            rest += 1 + _skip(rng, spans[gap])
        rest -= lanes * len(row)
        _select(values, height, lanes, extremes, places)
        for lane in range(lanes):
            value, place = extremes[kth, lane], places[lane]
            c = sorted_classes[place] if place < outright else others[place - outright, lane]
            if value <= u:
                value, c = _completed(row, centre, scale, u, lane, outright, binned, block, completion, rng)
            classes[first + lane] = c
            total += value - (row[c] - centre) * scale
    return epsilon * total / samples


@inner
def _put(
    values: Doubles,
    others: Integers,
    heights: Integers,
    lane: int,
    outright: int,
    height: int,
    value: float,
    owner: int,
) -> int:
    """Append a value to its lane, and return the length of the longest lane."""
    place = outright + heights[lane]
    if place == height:
        values[height] = -np.inf
        height += 1
    values[place, lane] = value
    others[heights[lane], lane] = owner
    heights[lane] += 1
    return height


@inner
def _select(values: Doubles, height: int, lanes: int, extremes: Doubles, places: Integers) -> None:
    """Write the k-th largest of each lane to the last row of ``extremes``, and its position; -inf for fewer than k.

    The k largest values of each lane are kept sorted by insertion. If fewer values lie at or below the k-th largest,
    these are kept instead, by negating all values.
    """
    last = len(extremes) - 1
    extremes[:] = -np.inf
    places[:] = 0
    if height < last:
        return
    turned = height - last + 1 < last
    sign, count = (-1.0, height - last + 1) if turned else (1.0, last)
    for i in range(height):
        for lane in range(lanes):
            extremes[last, lane] = sign * values[i, lane]
        for j in range(min(i + 1, count)):
            for lane in range(lanes):
                present, sinking = extremes[j, lane], extremes[last, lane]
                extremes[j, lane] = max(present, sinking)
                extremes[last, lane] = min(present, sinking)
    for lane in range(lanes):
        extremes[last, lane] = sign * extremes[count - 1, lane]
    for i in range(height):
        for lane in range(lanes):
            places[lane] = i if values[i, lane] == extremes[last, lane] else places[lane]


@inner
def _tiers(starts: Integers, edge: int, spans: Doubles, rng: np.random.Generator, tiers: Integers) -> int:
    """Write the bins that are thinned: start, number of classes, gap, cells before the first; return their number."""
    number = 0
    for j in range(edge + OUTRIGHT, BINS):
        if starts[j + 1] > starts[j]:
            tiers[0, number] = starts[j]
            tiers[1, number] = starts[j + 1] - starts[j]
            tiers[2, number] = j - edge
            tiers[3, number] = _skip(rng, spans[j - edge])
            number += 1
    return number


@inner
def _skip(rng: np.random.Generator, span: float) -> int:
    """The number of cells before the next one whose noise exceeds its gap."""
    return int(min(rng.standard_exponential() * span, FAR))


@inner
def _tail(rng: np.random.Generator, gap: float, slope: float) -> float:
    """A standard normal variable given that it exceeds a gap >= 0, by rejection from an exponential distribution."""
    while True:
        z = gap + rng.standard_exponential() / slope
        if 2 * rng.standard_exponential() >= (z - slope) ** 2:
            return z


@inner
def _completed(
    row: Floats,
    centre: float,
    scale: float,
    u: float,
    lane: int,
    outright: int,
    binned: Binned,
    block: Block,
    completion: Completion,
    rng: np.random.Generator,
) -> tuple[float, int]:
    """The k-th largest value and its class where fewer than k values exceed u; draws the others given this."""
    size = len(row)
    sorted_classes, drawn, others, heights = binned[0], block[0], block[1], block[2]
    values, above, largest = completion
    above[:] = False
    for i in range(outright + heights[lane]):
        if drawn[i, lane] > u:
            c = sorted_classes[i] if i < outright else others[i - outright, lane]
            values[c], above[c] = drawn[i, lane], True
    for c in range(size):
        if not above[c]:
            x = (row[c] - centre) * scale
            values[c] = min(x + _below(rng, u - x), u)
    kth, c = _kth_largest(values, largest), 0
    while values[c] != kth:
        c += 1
    return kth, c


@inner
def _below(rng: np.random.Generator, bound: float) -> float:
    """A standard normal variable given that it does not exceed the bound."""
    if bound < 0:
        return -_tail(rng, -bound, (math.sqrt(bound * bound + 4) - bound) / 2)
    while True:
        z = rng.standard_normal()
        if z <= bound:
            return z
