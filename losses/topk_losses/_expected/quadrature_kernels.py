"""The mean of the k-th largest, on the coarsest lattice that is fine enough."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topk_losses._expected.shared_kernels import BLOCK, Buffers, Rules, Tables, inner
from topk_losses._expected.sweeps_kernels import block

__all__ = ["quadrature"]

Doubles = NDArray[np.float64]

BEFORE = 6.0  # the lattice begins this many standard deviations below the mean
MOST_BLOCKS = 4096
FASTEST = 0.75  # the largest step worth trying, in standard deviations of the k-th largest
NEAR = 1.5  # classes this close to the centre, in units of ε, determine the first lattice
ALONE = 0.75  # the standard deviation of the k-th largest of classes whose scores are ε apart


@inner
def _sum_blocks(
    x: Doubles,
    swept: int,
    count: int,
    tables: Tables,
    k: int,
    rules: Rules,
    with_slope: bool,
    origin: int,
    buffers: Buffers,
) -> tuple[float, float, float]:
    """The mean, the difference of its estimates by even and odd nodes, and the second moment: blocks up, then down.

    With G = 1 - F for t >= 0 and -F below, they are ∫ G dt and 2 ∫ t G dt. At the kink of the latter at 0, the
    trapezoid rule gives h² / 6 too little, which is added.
    """
    cdf = buffers.cdf
    step = tables.step
    even, odd, moment, lowest = 0.0, 0.0, 0.0, 0.0
    origin -= origin % 2
    first, last = origin, origin
    buffers.slopes[:swept] = 0.0
    buffers.crowd_slopes[:count] = 0.0
    for direction in (1, -1):
        for _ in range(MOST_BLOCKS):
            if direction < 0 and lowest <= rules.tail:
                break
            at = last if direction > 0 else first - BLOCK
            block(x, swept, count, at * step, tables, k, rules, with_slope, buffers)
            if at == origin or direction < 0:
                lowest = cdf[0]
            first, last = min(first, at), max(last, at + BLOCK)
            for j in range(0, BLOCK, 2):
                one = 1.0 - cdf[j] if at + j >= 0 else -cdf[j]
                two = 1.0 - cdf[j + 1] if at + j + 1 >= 0 else -cdf[j + 1]
                even += one
                odd += two
                moment += one * (at + j) + two * (at + j + 1)
            if direction > 0 and cdf[BLOCK - 1] > 1.0 - rules.tail:
                break
    for j in range(first):
        even += 1.0 - j % 2
        odd += j % 2
        moment += j
    for j in range(last, 0):
        even -= 1.0 - j % 2
        odd -= j % 2
        moment -= j
    mean = step * (even + odd - 0.5)
    error = 2.0 * step * abs(even - odd - 0.5)
    return mean, error, 2.0 * step * step * moment + step * step / 6.0


@inner
def _missing(swept: int, count: int, step: float, buffers: Buffers) -> float:
    """The deviation of the slopes' sum from 1."""
    total = 0.0
    for i in range(swept):
        total += buffers.slopes[i]
    for i in range(count):
        total += buffers.crowd_slopes[i] * buffers.masses[i]
    return abs(step * total - 1.0)


@inner
def _level(lattices: tuple[Tables, ...], level: int, deviation: float) -> int:
    """The first lattice, from a level on, that is fine enough for a standard deviation of the k-th largest."""
    while level < len(lattices) - 1 and lattices[level].step > FASTEST * deviation:
        level += 1
    return level


@inner
def quadrature(
    x: Doubles,
    swept: int,
    count: int,
    total: int,
    lattices: tuple[Tables, ...],
    k: int,
    rules: Rules,
    with_slope: bool,
    buffers: Buffers,
) -> tuple[float, float]:
    """The mean and the step, on the first lattice whose even and odd nodes agree.

    With a crowd, slopes are only computed once the lattice is known to be fine enough for F.
    """
    narrowest = 1.0 / (math.sqrt(k) * (1.0 + math.sqrt(2.0 * math.log(max(1.0, total / k)))))
    level, sloping, origin = 0, with_slope and count == 0, 0
    if count == 0:
        near = 0
        for i in range(swept):
            near += abs(x[i]) < NEAR
        deviation = ALONE * math.sqrt(2.0 * NEAR / max(1, near))
        level = _level(lattices, level, deviation)
        origin = -int(BEFORE * min(0.95, deviation) / lattices[level].step)
    while True:
        tables = lattices[level]
        step = tables.step
        mean, error, square = _sum_blocks(x, swept, count, tables, k, rules, sloping, origin, buffers)
        if sloping:
            error = max(error, _missing(swept, count, step, buffers))
        allowed = rules.target * math.exp(min(50.0, 1.5 * (math.pi * narrowest / step) ** 2))
        good = error <= min(rules.cap, allowed) or level == len(lattices) - 1
        if good and (sloping or not with_slope):
            return mean, step
        if not good:
            deviation = math.sqrt(max(square - mean * mean, 0.2 * step * step))
            level = _level(lattices, level + 1, deviation)
            origin = math.floor((mean - BEFORE * deviation) / lattices[level].step)
        sloping = with_slope
