"""CPU kernels that make the draws of a row side by side, in lanes; ``cpu.py`` has the method and its proof."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from topk_losses._core.numba_kernels import inner
from topk_losses._noised.bins_kernels import ABOVE, BINS, OUTRIGHT, WIDTH, kth_largest

if TYPE_CHECKING:
    from topk_losses._noised.bins_kernels import Binned, Block, Completion, Doubles, Floats, Integers, Tables

__all__ = ["draw"]

FAR = 2.0**62  # more cells than any call has


@inner
def draw(
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
                position = start + cell - lane * count
                value = x[position] + _tail(rng, gap * WIDTH, slopes[gap])
                if value > u:
                    height = _put(
                        values, others, heights, lane, outright, height, value, sorted_classes[position]
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
            value, position = extremes[kth, lane], places[lane]
            c = sorted_classes[position] if position < outright else others[position - outright, lane]
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
    position = outright + heights[lane]
    if position == height:
        values[height] = -np.inf
        height += 1
    values[position, lane] = value
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
    kth, c = kth_largest(values, largest), 0
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
