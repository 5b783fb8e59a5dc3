"""F at the nodes of a block, and the block's part of the slopes: forward and backward sweeps over the classes."""

from __future__ import annotations

import math

from topk_losses._core.numba_kernels import Doubles, Integers
from topk_losses._expected.tails_kernels import BLOCK, Buffers, Rules, Tables, inner, logs, summing, tails

__all__ = ["block"]


# A lower bound of all probabilities: products of smaller numbers would be denormal, which is slow.
FLOOR = 1e-60


@inner
def _repeat(values: Doubles, size: int) -> None:
    for q in range(size - BLOCK):
        values[q + BLOCK] = values[q]


@inner
def _add_class(state: Doubles, before: Doubles, exceed: Doubles, size: int) -> None:
    """Update the distribution of the number of exceedances by one class; keep that before it in ``before``."""
    for q in range(size + BLOCK):
        before[q] = state[q]
    for q in range(size):
        state[q + BLOCK] = before[q + BLOCK] + exceed[q] * (before[q] - before[q + BLOCK])


@summing
def _add_class_behind(
    follow: Doubles, before: Doubles, exceed: Doubles, density: Doubles, size: int
) -> float:
    """The block's part of a class's slope, given the classes before and after it; then adds it to those after."""
    share = 0.0
    for q in range(size):
        v = follow[q]
        share += before[q + BLOCK] * v * density[q]
        follow[q] = v + exceed[q] * (follow[q + BLOCK] - v)
    return share


@inner
def _crowd_start(count: int, start: float, tables: Tables, k: int, most: float, buffers: Buffers) -> None:
    """Write the probabilities that exactly m < k of the crowd exceed the nodes, from power sums (``crowd.py``)."""
    sums, state = buffers.sums, buffers.state
    exceed, ratio, power = buffers.lanes[0], buffers.lanes[1], buffers.lanes[2]
    sums[:k] = 0.0
    for i in range(count):
        logs(buffers.points[i] - start, tables, ratio)
        tails(buffers.points[i] - start, tables, exceed, power)
        mass, total = buffers.masses[i], sums[0]
        for j in range(BLOCK):
            total[j] += mass * ratio[j]
            p = min(max(exceed[j], 0.0), most)
            ratio[j] = p / (1.0 - p)
            power[j] = mass
        for m in range(1, k):
            total = sums[m]
            for j in range(BLOCK):
                power[j] *= ratio[j]
                total[j] += power[j]
    state[: k * BLOCK + BLOCK] = 0.0
    state[BLOCK : 2 * BLOCK] = 1.0
    for m in range(1, k):
        new = state[(m + 1) * BLOCK : (m + 2) * BLOCK]
        sign = 1.0 / m
        for i in range(1, m + 1):
            old, total = state[(m - i + 1) * BLOCK : (m - i + 2) * BLOCK], sums[i]
            for j in range(BLOCK):
                new[j] += sign * old[j] * total[j]
            sign = -sign
    for j in range(BLOCK):
        power[j] = math.exp(sums[0, j])
    for m in range(k + 1):
        new = state[m * BLOCK : (m + 1) * BLOCK]
        for j in range(BLOCK):
            new[j] = max(new[j] * power[j], 0.0) + FLOOR


@summing
def _crowd_slope(
    state: Doubles, exceed: Doubles, density: Doubles, rest: Doubles, k: int, most: float
) -> float:
    """``Σ_t φ(t - x) P(exactly k - 1 of all but the class at x exceed t)``, by polynomial division."""
    for j in range(BLOCK):
        p = min(max(exceed[j], 0.0), most)
        stay = 1.0 / (1.0 - p)
        density[j] *= stay
        exceed[j] = p * stay
        rest[j] = state[BLOCK + j]
    for m in range(2, k + 1):
        more = state[m * BLOCK : (m + 1) * BLOCK]
        for j in range(BLOCK):
            rest[j] = more[j] - exceed[j] * rest[j]
    total = 0.0
    for j in range(BLOCK):
        total += density[j] * max(rest[j], 0.0)
    return total


@inner
def _active(
    x: Doubles, swept: int, start: float, end: float, k: int, noise: float, active: Integers
) -> tuple[int, int]:
    """List the swept classes that may be on either side of a node; return their number and what remains of k."""
    number = 0
    for i in range(swept):
        if x[i] + noise > start:
            if x[i] - noise > end:
                k -= 1
            else:
                active[number] = i
                number += 1
    return number, k


@inner
def _forward(
    start: float, number: int, count: int, x: Doubles, tables: Tables, k: int, most: float, buffers: Buffers
) -> None:
    """Write F at the nodes, and the probabilities of m exceedances before each active class, including the crowd."""
    state, size = buffers.state, k * BLOCK
    if count:
        _crowd_start(count, start, tables, k, most, buffers)
    else:
        state[: size + BLOCK] = FLOOR
        state[BLOCK : 2 * BLOCK] = 1.0
    for a in range(number):
        exceed = buffers.exceed[a]
        tails(x[buffers.active[a]] - start, tables, exceed, buffers.density[a])
        _repeat(exceed, size)
        _add_class(state, buffers.before[a], exceed, size)
    for m in range(1, k + 1):
        part = state[m * BLOCK : (m + 1) * BLOCK]
        for j in range(BLOCK):
            buffers.cdf[j] += part[j]


@inner
def _backward(
    start: float, number: int, count: int, tables: Tables, k: int, most: float, buffers: Buffers
) -> None:
    """Add the block's part to the slopes of the active classes and of the crowd's points."""
    follow, size = buffers.follow, k * BLOCK
    exceed, density, rest = buffers.lanes[0], buffers.lanes[1], buffers.lanes[2]
    for i in range(count):
        tails(buffers.points[i] - start, tables, exceed, density)
        buffers.crowd_slopes[i] += _crowd_slope(buffers.state, exceed, density, rest, k, most)
    follow[: size + BLOCK] = FLOOR
    follow[size - BLOCK : size] = 1.0
    for a in range(number - 1, -1, -1):
        _repeat(buffers.density[a], size)
        buffers.slopes[buffers.active[a]] += _add_class_behind(
            follow, buffers.before[a], buffers.exceed[a], buffers.density[a], size
        )


@inner
def block(
    x: Doubles,
    swept: int,
    count: int,
    start: float,
    tables: Tables,
    k: int,
    rules: Rules,
    with_slope: bool,
    buffers: Buffers,
) -> None:
    """Write F at the nodes of a block, and add the block's part to the slopes."""
    end = start + (BLOCK - 1) * tables.step
    number, left = _active(x, swept, start, end, k, rules.noise, buffers.active)
    buffers.cdf[:] = 0.0
    if left > 0:
        _forward(start, number, count, x, tables, left, rules.most, buffers)
        if with_slope:
            _backward(start, number, count, tables, left, rules.most, buffers)
