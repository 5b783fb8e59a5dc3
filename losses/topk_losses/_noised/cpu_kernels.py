"""The noised top-K operator's draws, compiled for the CPU; ``cpu.py`` explains and proves what is done here."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from topk_losses._core.numba_kernels import borrowing, entry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Doubles: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]
    Booleans: TypeAlias = NDArray[np.bool_]

    # Plain tuples: Numba would keep the names of our classes on disk, and fail where a later version has renamed them.
    Tables: TypeAlias = tuple[Doubles, Doubles, Doubles]
    """For the gaps ``g = i WIDTH``: ``1 - Φ((i + 1/2 - BINS) WIDTH)`` for i in ``[0, 2 BINS)``, ``-1 / log Φ(g)`` and
    ``(g + sqrt(g² + 4)) / 2`` for i in ``[0, BINS]``.
    """
    Found: TypeAlias = tuple[Integers, Doubles, Integers]
    """A row's classes that stand in bins, their scores in units of ε from the centre, and their bins."""
    Binned: TypeAlias = tuple[Integers, Doubles, Integers]
    """The same from the highest bin to the lowest, and where each bin starts ``(BINS + 1,)``."""
    Block: TypeAlias = tuple[Doubles, Integers, Integers, Doubles, Integers]
    """Draws side by side, in lanes: noisy scores one below the other, first those drawn outright; the classes of the
    others and how many there are; room for the k largest, and the k-th largest ``(k + 1, ·)``; where that stands.
    """
    Completion: TypeAlias = tuple[Doubles, Booleans, Doubles]
    """Every class's value ``(L,)``, whether it exceeds the threshold ``(L,)``, and room for the k largest values."""
    Room: TypeAlias = tuple[tuple[Floats, Doubles], Found, Binned, Integers, Block, Completion]
    """Memory for one row: the groups' maxima and the k largest of them, then as above, with the bins that are thinned
    ``(4, BINS + 1)`` after the binned classes.
    """

__all__ = ["draw_rows", "generator", "room_for", "tables"]

WIDTH = 0.2  # of a bin of classes, in units of ε
ABOVE = 21  # bins above the centre, the first one with all that is higher still
BINS = ABOVE + 31
DEEPEST = ABOVE + 14  # the lowest threshold is the upper edge of this bin
OUTRIGHT = 3  # bins below the threshold whose classes are drawn outright
WHOLE = 24  # classes up to which all are drawn outright
MEMBERS = 8  # of a group of classes of which only the largest score is looked at first
SPARE = 4  # groups for each of the k largest scores
MOST_LANES = 64  # draws made side by side
LANES_ROOM = 2**21  # as many scores as there are in these
FAR = 2.0**62  # more cells than anybody has


def generator(seed: int, part: int) -> np.random.Generator:
    """The source of the draws for a part of the rows that a seed serves."""
    return np.random.Generator(np.random.SFC64([seed, part]))


@functools.cache
def tables() -> Tables:
    """What depends on the bins alone."""
    gaps = [i * WIDTH for i in range(BINS + 1)]
    return (
        np.array([_tail_probability((i + 0.5 - BINS) * WIDTH) for i in range(2 * BINS)]),
        np.array([-1 / math.log1p(-_tail_probability(gap)) for gap in gaps]),
        np.array([(gap + math.sqrt(gap * gap + 4)) / 2 for gap in gaps]),
    )


def _tail_probability(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def room_for(scores: Floats, k: int, samples: int) -> Room:
    """Memory for one thread."""
    size, lanes = scores.shape[1], max(8, min(samples, MOST_LANES, LANES_ROOM // scores.shape[1]))
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
    room: Room,
    classes: Integers,
    noise: Floats,
) -> None:
    """Fill the k-th largest's classes ``(N, B)`` and mean noise ``(N,)`` for scores ``(N, L)``.

    Where there is NaN or +inf the noise is NaN, where fewer than k classes are not masked -inf, and the classes -1.
    """
    (maxima, largest), found, binned, tiers, block, completion = room
    size = scores.shape[1]
    for n in range(len(scores)):
        row = scores[n]
        _maximise(row, maxima)
        centre = _kth_largest(maxima, largest)
        if centre == -np.inf:  # few groups have a class that is not masked
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


@borrowing
def _maximise(row: Floats, maxima: Floats) -> None:
    """The largest score of each group, which has every so many-th class; NaN if there is one."""
    groups = len(maxima)
    for j in range(groups):
        maxima[j] = row[j]
    for first in range(groups, len(row), groups):
        part = row[first : first + groups]
        for j in range(len(part)):
            score = part[j]
            maxima[j] = score if (score > maxima[j]) | (score != score) else maxima[j]  # noqa: PLR0124


@borrowing
def _kth_largest(scores: Floats, largest: Doubles) -> float:
    """The k-th largest; NaN if one is NaN or +inf."""
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


@borrowing
def _collect(row: Floats, maxima: Floats, centre: float, epsilon: float, found: Found) -> int:
    """Find the classes above the lowest bin's lower edge; their number."""
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


@borrowing
def _leading(x: Doubles, number: int) -> int:
    leading = 0
    for i in range(number):
        leading += x[i] >= 0
    return leading


@borrowing
def _whole(row: Floats, centre: float, epsilon: float, binned: Binned) -> int:
    """All classes in the highest bin, above a threshold that lies below all bins."""
    classes, x, starts = binned
    for c in range(len(row)):
        classes[c] = c
        x[c] = (row[c] - centre) * (1 / epsilon)
    starts[1:] = len(row)
    starts[0] = 0
    return BINS


@borrowing
def _order(found: Found, number: int, binned: Binned) -> None:
    """Sort classes by bins, the highest one first."""
    classes, x, bins = found
    sorted_classes, sorted_x, starts = binned
    starts[:] = 0
    for i in range(number):
        bins[i] = min(int(max(ABOVE - x[i] * (1 / WIDTH), 0.0)), BINS - 1)
        starts[bins[i]] += 1
    for j in range(BINS):  # where it ends; it is filled from there
        starts[j + 1] += starts[j]
    for i in range(number):
        place = starts[bins[i]] - 1
        starts[bins[i]] = place
        sorted_classes[place] = classes[i]
        sorted_x[place] = x[i]


@borrowing
def _threshold(starts: Integers, wanted: float, tails: Doubles) -> int:
    """The first bin from whose upper edge on as many classes as wanted are expected to exceed it."""
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


@borrowing
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
    """Fill the classes ``(B,)`` of a row's draws; the mean noise."""
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


@borrowing
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
    """Put a value on top of its lane; the height of the highest lane."""
    place = outright + heights[lane]
    if place == height:
        values[height] = -np.inf
        height += 1
    values[place, lane] = value
    others[heights[lane], lane] = owner
    heights[lane] += 1
    return height


@borrowing
def _select(values: Doubles, height: int, lanes: int, extremes: Doubles, places: Integers) -> None:
    """Leave the k-th largest of each lane in the last row of the extremes, and where it stands.

    The k largest of a lane, or, if these are fewer, the smallest ones from the k-th largest on with their signs
    turned: value after value sinks to its place among them. -inf where there are fewer than k.
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


@borrowing
def _tiers(starts: Integers, edge: int, spans: Doubles, rng: np.random.Generator, tiers: Integers) -> int:
    """The bins whose classes are thinned: first place, number of classes, gap, cells before the first one drawn."""
    number = 0
    for j in range(edge + OUTRIGHT, BINS):
        if starts[j + 1] > starts[j]:
            tiers[0, number] = starts[j]
            tiers[1, number] = starts[j + 1] - starts[j]
            tiers[2, number] = j - edge
            tiers[3, number] = _skip(rng, spans[j - edge])
            number += 1
    return number


@borrowing
def _skip(rng: np.random.Generator, span: float) -> int:
    """How many cells come before the next one that exceeds its gap."""
    return int(min(rng.standard_exponential() * span, FAR))


@borrowing
def _tail(rng: np.random.Generator, gap: float, slope: float) -> float:
    """A standard normal that exceeds a gap of at least 0, by rejection from an exponential distribution."""
    while True:
        z = gap + rng.standard_exponential() / slope
        if 2 * rng.standard_exponential() >= (z - slope) ** 2:
            return z


@borrowing
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
    """The k-th largest value and its class where fewer than k classes exceed u: all others are drawn, given this."""
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


@borrowing
def _below(rng: np.random.Generator, bound: float) -> float:
    """A standard normal that does not exceed the bound."""
    if bound < 0:
        return -_tail(rng, -bound, (math.sqrt(bound * bound + 4) - bound) / 2)
    while True:
        z = rng.standard_normal()
        if z <= bound:
            return z
