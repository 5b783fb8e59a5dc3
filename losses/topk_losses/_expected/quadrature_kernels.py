"""The mean of the k-th largest on the coarsest lattice that is fine enough, and the points that stand for a crowd."""

from __future__ import annotations

import math

from topk_losses._core.numba_kernels import Doubles
from topk_losses._expected.sweeps_kernels import block
from topk_losses._expected.tails_kernels import BLOCK, LEADING, LEADING_SPARE, Buffers, Rules, Tables, inner

__all__ = ["bound", "points", "quadrature", "spread"]


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


@inner
def bound(total: int, k: int, rules: Rules, buffers: Buffers) -> int:
    """Assign the classes to cells, and return the first cell above the crowd."""
    top = len(buffers.sizes) - 1
    buffers.sizes[:] = 0
    for i in range(total):
        at = int(min((buffers.x[i] + rules.depth) / rules.cell, float(top)))
        buffers.cells[i] = at
        buffers.sizes[at] += 1
    bound, above = top, buffers.sizes[top]
    while bound > 0 and above < LEADING * k:
        bound -= 1
        above += buffers.sizes[bound]
    return bound + 1 if above > LEADING * k + LEADING_SPARE else bound


@inner
def _within(x: float, cell: int, rules: Rules) -> float:
    """The position of a class in its cell, from -1 to 1."""
    return ((x + rules.depth) / rules.cell - cell) * 2.0 - 1.0


@inner
def points(
    total: int, bound: int, inverse: Doubles, moments: Doubles, rules: Rules, buffers: Buffers
) -> tuple[int, int]:
    """Write the classes above the crowd and the crowd's points, and return both numbers.

    Points are Chebyshev points with masses in dense cells, and the classes themselves in other cells.
    """
    orders = len(inverse)
    swept, count = 0, 0
    moments[:bound] = 0.0
    for i in range(total):
        at = buffers.cells[i]
        if at >= bound:
            buffers.lead[swept] = buffers.x[i]
            swept += 1
        elif buffers.sizes[at] > orders:
            fraction, power = _within(buffers.x[i], at, rules), 1.0
            own = moments[at]
            for m in range(orders):
                own[m] += power
                power *= fraction
        else:
            buffers.points[count] = buffers.x[i]
            buffers.masses[count] = 1.0
            count += 1
    for at in range(bound):
        if buffers.sizes[at] > orders:
            for m in range(orders):
                mass = 0.0
                for j in range(orders):
                    mass += inverse[j, m] * moments[at, j]
                fraction = 0.5 + 0.5 * math.cos(math.pi * (m + 0.5) / orders)
                buffers.points[count] = (at + fraction) * rules.cell - rules.depth
                buffers.masses[count] = mass
                count += 1
    return swept, count


@inner
def spread(
    total: int,
    bound: int,
    inverse: Doubles,
    terms: Doubles,
    step: float,
    rules: Rules,
    buffers: Buffers,
    out: Doubles,
) -> None:
    """Write the slopes of all classes, from those of the swept classes and of the crowd's points."""
    orders = len(inverse)
    alone = 0
    for i in range(total):
        if buffers.cells[i] < bound and buffers.sizes[buffers.cells[i]] <= orders:
            alone += 1
    for at in range(bound):
        if buffers.sizes[at] > orders:
            for j in range(orders):
                term = 0.0
                for m in range(orders):
                    term += inverse[j, m] * buffers.crowd_slopes[alone + m]
                terms[at, j] = term
            alone += orders
    swept, count = 0, 0
    for i in range(total):
        at = buffers.cells[i]
        if at >= bound:
            value = buffers.slopes[swept]
            swept += 1
        elif buffers.sizes[at] > orders:
            fraction, own = _within(buffers.x[i], at, rules), terms[at]
            value = own[orders - 1]
            for m in range(orders - 2, -1, -1):
                value = value * fraction + own[m]
            value = max(value, 0.0)
        else:
            value = buffers.crowd_slopes[count]
            count += 1
        out[i] = value * step
