r"""Kernels of the expected k-th largest: candidates, quadrature and the probability of each class, row by row.

``expected.py`` has the rules and their reasons; here is what they take. Scores are in units of ε from the row's centre.
Nodes stand on a lattice that is fixed but for its step, in blocks of eight, so that tail probabilities come from a
table, and arithmetic runs over the nodes of a block side by side: the last index of every array, or the rest of a
division by 8 of it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topk_losses._kernels.compiled import compiled

__all__ = ["expectations", "levels", "scatter"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

BLOCK = 8  # nodes
MOST_BLOCKS = 4096
TERMS = 6  # of a tabled function's Taylor series
FLOOR = 1e-60  # under every probability, so that products of them are no denormal numbers, which would be slow
LEADING = 4  # times k: classes that are swept, at least, above a crowd
MANY = 64  # more classes that may be, where they are close together
TOP = 16.0  # of the cells


@compiled
def levels(
    scores: Floats, k: int, groups: int, centre: Floats, depth: float, counts: Numbers, first: int, last: int
) -> None:
    """A score that k classes reach, the number of classes no further than ``depth`` below it; -1 for odd rows.

    Odd are rows with NaN or +inf and those with fewer than k classes.
    """
    classes = scores.shape[1]
    maxima, sums, best = (
        np.empty(groups, scores.dtype),
        np.empty(groups, scores.dtype),
        np.empty(k, scores.dtype),
    )
    for row in range(first, last):
        s = scores[row]
        for g in range(groups):
            maxima[g] = s[g]
            sums[g] = s[g]
        for start in range(groups, classes, groups):
            for g in range(min(groups, classes - start)):
                v = s[start + g]
                sums[g] += v  # NaN if there is one, or +inf beside -inf
                maxima[g] = v if v > maxima[g] else maxima[g]
        best[:] = -np.inf
        odd = False
        for g in range(groups):
            v = maxima[g]
            odd |= sums[g] != sums[g] or v == np.inf
            if v > best[k - 1]:
                place = k - 1
                while place > 0 and best[place - 1] < v:
                    best[place] = best[place - 1]
                    place -= 1
                best[place] = v
        centre[row] = best[k - 1]
        counts[row] = -1
        if not odd and best[k - 1] > -np.inf:
            low = centre[row] - depth
            count = 0
            for c in range(classes):
                count += s[c] >= low
            counts[row] = count


@compiled
def _tails(x: float, start: float, table: Floats, width: float, phases: int, function: int, out: Floats) -> None:
    """Function number 0, P(X > t), 1, its density, or 2, log P(X <= t), at the eight nodes from ``start``."""
    length = table.shape[3]
    place = (x - start) / width
    cell = math.floor(place + 0.5)
    rest = place - cell
    whole = cell // phases
    first = min(max(length // 2 - whole, 0), length - BLOCK)
    part = table[cell - whole * phases, function]
    for j in range(BLOCK):
        value = part[TERMS - 1, first + j]
        for m in range(TERMS - 2, -1, -1):
            value = value * rest + part[m, first + j]
        out[j] = value


@compiled
def _crowd_start(
    points: Floats,
    masses: Floats,
    count: int,
    start: float,
    table: Floats,
    width: float,
    phases: int,
    k: int,
    most: float,
    state: Floats,
    sums: Floats,
) -> None:
    """The probabilities that exactly m < k of a crowd exceed each node, into ``state`` from its block 1 on."""
    size = k * BLOCK
    ratio, power, stay = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    sums[:size] = 0.0
    for i in range(count):
        _tails(points[i], start, table, width, phases, 2, stay)
        _tails(points[i], start, table, width, phases, 0, ratio)
        mass = masses[i]
        for j in range(BLOCK):
            p = min(max(ratio[j], 0.0), most)
            sums[j] += mass * stay[j]
            ratio[j] = p / (1.0 - p)
            power[j] = mass
        for m in range(1, k):
            for j in range(BLOCK):
                power[j] *= ratio[j]
                sums[m * BLOCK + j] += power[j]
    for j in range(BLOCK):  # Newton's identities
        state[BLOCK + j] = 1.0
    for m in range(1, k):
        for j in range(BLOCK):
            total, sign = 0.0, 1.0
            for i in range(1, m + 1):
                total += sign * state[(m - i + 1) * BLOCK + j] * sums[i * BLOCK + j]
                sign = -sign
            state[(m + 1) * BLOCK + j] = total / m
    for j in range(BLOCK):
        power[j] = math.exp(sums[j])
    for m in range(1, k + 1):
        for j in range(BLOCK):
            state[m * BLOCK + j] = max(state[m * BLOCK + j] * power[j], 0.0) + FLOOR


@compiled
def _crowd_slopes(
    points: Floats,
    masses: Floats,
    count: int,
    start: float,
    table: Floats,
    width: float,
    phases: int,
    k: int,
    most: float,
    state: Floats,
    slopes: Floats,
    peaks: Floats,
) -> None:
    """Adds ``Σ_t φ(t - x) P(exactly k - 1 of all but the one at x exceed t)`` for every point of the crowd."""
    exceed, density, rest = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for i in range(count):
        _tails(points[i], start, table, width, phases, 0, exceed)
        _tails(points[i], start, table, width, phases, 1, density)
        for j in range(BLOCK):
            p = min(max(exceed[j], 0.0), most)
            density[j] /= 1.0 - p
            exceed[j] = p / (1.0 - p)
            rest[j] = state[BLOCK + j]
        for m in range(2, k + 1):
            for j in range(BLOCK):
                rest[j] = state[m * BLOCK + j] - exceed[j] * rest[j]
        total = 0.0
        for j in range(BLOCK):
            share = density[j] * max(rest[j], 0.0)
            peaks[j] += masses[i] * share
            total += share
        slopes[i] += total


@compiled
def _block(
    x: Floats,
    swept: int,
    points: Floats,
    masses: Floats,
    count: int,
    start: float,
    step: float,
    table: Floats,
    width: float,
    phases: int,
    k: int,
    noise: float,
    most: float,
    with_slope: bool,
    active: Numbers,
    exceed: Floats,
    density: Floats,
    before: Floats,
    sums: Floats,
    cdf: Floats,
    peaks: Floats,
    slopes: Floats,
    crowd_slopes: Floats,
) -> None:
    """F and its derivative at the nodes of a block; adds to the slopes of all who can be the k-th largest there."""
    end = start + (BLOCK - 1) * step
    number = 0
    for i in range(swept):
        if x[i] + noise > start:
            if x[i] - noise > end:
                k -= 1
            else:
                active[number] = i
                number += 1
    cdf[:] = 0.0
    peaks[:] = 0.0
    if k <= 0:
        return
    size = k * BLOCK
    here = before[0]
    here[: size + BLOCK] = FLOOR
    if count:
        _crowd_start(points, masses, count, start, table, width, phases, k, most, here, sums)
    else:
        here[BLOCK : 2 * BLOCK] = 1.0
    for a in range(number):
        p = exceed[a]
        _tails(x[active[a]], start, table, width, phases, 0, p)
        for m in range(1, k):
            p[m * BLOCK : (m + 1) * BLOCK] = p[:BLOCK]
        here, after = before[a], before[a + 1]
        after[:BLOCK] = FLOOR
        for q in range(size):
            after[q + BLOCK] = here[q + BLOCK] + p[q] * (here[q] - here[q + BLOCK])
    total = before[number]
    for m in range(1, k + 1):
        for j in range(BLOCK):
            cdf[j] += total[m * BLOCK + j]
    if not with_slope:
        return
    if count:
        _crowd_slopes(
            points, masses, count, start, table, width, phases, k, most, total, crowd_slopes, peaks
        )
    follow = sums
    follow[: size + BLOCK] = FLOOR
    follow[size - BLOCK : size] = 1.0
    for a in range(number - 1, -1, -1):
        i = active[a]
        p, here = exceed[a], before[a]
        _tails(x[i], start, table, width, phases, 1, density)
        share = 0.0
        for q in range(BLOCK):
            both = 0.0
            for m in range(k):
                both += here[(m + 1) * BLOCK + q] * follow[m * BLOCK + q]
            both *= density[q]
            peaks[q] += both
            share += both
        slopes[i] += share
        for q in range(size):
            follow[q] += p[q] * (follow[q + BLOCK] - follow[q])


@compiled
def _march(
    x: Floats,
    swept: int,
    points: Floats,
    masses: Floats,
    count: int,
    step: float,
    table: Floats,
    width: float,
    phases: int,
    k: int,
    noise: float,
    most: float,
    tail: float,
    with_slope: bool,
    active: Numbers,
    exceed: Floats,
    density: Floats,
    before: Floats,
    sums: Floats,
    slopes: Floats,
    crowd_slopes: Floats,
) -> tuple[float, float]:
    """The mean and how far its two ways by every other node are apart, blocks up and down from the centre."""
    cdf, peaks = np.empty(BLOCK), np.empty(BLOCK)
    areas, weights = np.zeros(2), np.zeros(2)
    slopes[:swept] = 0.0
    crowd_slopes[:count] = 0.0
    for up in (True, False):
        for number in range(MOST_BLOCKS):
            at = number if up else -1 - number
            _block(
                x,
                swept,
                points,
                masses,
                count,
                at * BLOCK * step,
                step,
                table,
                width,
                phases,
                k,
                noise,
                most,
                with_slope,
                active,
                exceed,
                density,
                before,
                sums,
                cdf,
                peaks,
                slopes,
                crowd_slopes,
            )
            for j in range(BLOCK):
                areas[j % 2] += 1.0 - cdf[j] if up else -cdf[j]
                weights[j % 2] += peaks[j]
            if cdf[BLOCK - 1] > 1.0 - tail if up else cdf[0] < tail:
                break
    error = 2.0 * step * abs(areas[0] - areas[1] - 0.5)
    if with_slope:
        error = max(error, 2.0 * step * abs(weights[0] - weights[1]))
    return step * (areas[0] + areas[1] - 0.5), error


@compiled
def _gathered(
    x: Floats,
    total: int,
    k: int,
    depth: float,
    cell: float,
    inverse: Floats,
    cells: Numbers,
    sizes: Numbers,
    lead: Floats,
    points: Floats,
    masses: Floats,
) -> tuple[int, int, int]:
    """Splits classes into those swept and a crowd, of which dense cells become a few points with masses.

    Returns the numbers of the swept and of the points, and the first cell above the crowd.
    """
    orders = inverse.shape[0]
    top = len(sizes) - 1
    sizes[:] = 0
    for i in range(total):
        at = min(int((x[i] + depth) / cell), top)
        cells[i] = at
        sizes[at] += 1
    bound, above = top, sizes[top]
    while bound > 0 and above < LEADING * k:
        bound -= 1
        above += sizes[bound]
    if above > LEADING * k + MANY:
        bound += 1
    moments = np.zeros((bound, orders))
    swept = 0
    for i in range(total):
        at = cells[i]
        if at >= bound:
            lead[swept] = x[i]
            swept += 1
        elif sizes[at] > orders:
            place = ((x[i] + depth) / cell - at) * 2.0 - 1.0
            power = 1.0
            for m in range(orders):
                moments[at, m] += power
                power *= place
    count = 0
    for at in range(bound):
        if sizes[at] > orders:
            for m in range(orders):
                mass = 0.0
                for j in range(orders):
                    mass += inverse[j, m] * moments[at, j]
                masses[count] = mass
                points[count] = (at + 0.5 + 0.5 * math.cos(math.pi * (m + 0.5) / orders)) * cell - depth
                count += 1
    for i in range(total):
        if cells[i] < bound and sizes[cells[i]] <= orders:
            points[count] = x[i]
            masses[count] = 1.0
            count += 1
    return swept, count, bound


@compiled
def _spread(
    total: int,
    bound: int,
    x: Floats,
    depth: float,
    cell: float,
    inverse: Floats,
    cells: Numbers,
    sizes: Numbers,
    slopes: Floats,
    crowd_slopes: Floats,
    step: float,
    out: Floats,
) -> None:
    """The slopes of the classes, from those of the swept and of the crowd's points."""
    orders = inverse.shape[0]
    terms = np.empty((bound, orders))
    count = 0
    for at in range(bound):
        if sizes[at] > orders:
            for j in range(orders):
                term = 0.0
                for m in range(orders):
                    term += inverse[j, m] * crowd_slopes[count + m]
                terms[at, j] = term * step
            count += orders
    swept = 0
    for i in range(total):
        at = cells[i]
        if at >= bound:
            out[i] = slopes[swept] * step
            swept += 1
        elif sizes[at] > orders:
            place = ((x[i] + depth) / cell - at) * 2.0 - 1.0
            value = terms[at, orders - 1]
            for m in range(orders - 2, -1, -1):
                value = value * place + terms[at, m]
            out[i] = max(value, 0.0)
        else:
            out[i] = crowd_slopes[count] * step
            count += 1


@compiled
def expectations(
    scores: Floats,
    k: int,
    epsilon: float,
    centre: Floats,
    counts: Numbers,
    offsets: Numbers,
    depth: float,
    noise: float,
    tail: float,
    target: float,
    cap: float,
    most: float,
    crowded: int,
    cell: float,
    inverse: Floats,
    tables: tuple[Floats, ...],
    widths: Floats,
    phases: Numbers,
    with_slope: bool,
    shift: Floats,
    names: NDArray[np.int32],
    out: Floats,
    first: int,
    last: int,
) -> None:
    """The expected k-th largest from the centre in units of ε, and which classes are it with which probability."""
    widest = 1
    for row in range(first, last):
        widest = max(widest, counts[row])
    swept_most = widest if widest <= crowded else max(crowded, LEADING * k + MANY)
    x, lead = np.empty(widest), np.empty(widest)
    points, masses = np.empty(widest), np.empty(widest)
    cells, active = np.empty(widest, np.int64), np.empty(swept_most, np.int64)
    sizes = np.empty(int(depth / cell) + int(TOP / cell) + 2, np.int64)
    exceed, density = np.empty((swept_most, k * BLOCK)), np.empty(BLOCK)
    before = np.empty((swept_most + 1, (k + 1) * BLOCK))
    sums = np.empty((k + 1) * BLOCK)
    slopes, crowd_slopes = np.empty(swept_most), np.empty(widest)
    finest = len(tables) - 1
    for row in range(first, last):
        s, total, place = scores[row], 0, offsets[row]
        low = centre[row] - epsilon * depth
        for c in range(scores.shape[1]):
            if s[c] >= low and total < counts[row]:
                x[total] = (s[c] - centre[row]) / epsilon
                names[place + total] = c
                total += 1
        swept, count, bound = total, 0, 0
        mine = x
        if total > crowded:
            swept, count, bound = _gathered(
                x, total, k, depth, cell, inverse, cells, sizes, lead, points, masses
            )
            mine = lead
        narrowest = 1.0 / (math.sqrt(k) * (1.0 + math.sqrt(2.0 * math.log(max(1.0, total / k)))))
        level, sloping = 0, with_slope and count == 0
        while level < finest and count and narrowest * 2.0 < widths[level] * phases[level]:
            level += 1
        while True:
            step = widths[level] * phases[level]
            mean, error = _march(
                mine,
                swept,
                points,
                masses,
                count,
                step,
                tables[level],
                widths[level],
                phases[level],
                k,
                noise,
                most,
                tail,
                sloping,
                active,
                exceed,
                density,
                before,
                sums,
                slopes,
                crowd_slopes,
            )
            bound_on_error = min(cap, target * math.exp(min(50.0, 1.5 * (math.pi * narrowest / step) ** 2)))
            if error > bound_on_error and level < finest:
                level += 1
            elif sloping or not with_slope:
                break
            else:
                sloping = True
        shift[row] = mean
        if with_slope and count:
            _spread(
                total,
                bound,
                x,
                depth,
                cell,
                inverse,
                cells,
                sizes,
                slopes,
                crowd_slopes,
                step,
                out[place : place + total],
            )
        elif with_slope:
            for i in range(total):
                out[place + i] = slopes[i] * step


@compiled
def scatter(
    names: NDArray[np.int32],
    shares: Floats,
    offsets: Numbers,
    counts: Numbers,
    gradient: Floats,
    out: Floats,
    first: int,
    last: int,
) -> None:
    """Each row's shares times its gradient, where they belong."""
    for row in range(first, last):
        for i in range(offsets[row], offsets[row] + counts[row]):
            out[row, names[i]] = shares[i] * gradient[row]
