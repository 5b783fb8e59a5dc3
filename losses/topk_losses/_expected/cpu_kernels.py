r"""Kernels of the expected k-th largest: candidates, quadrature and the probability of each class, row by row.

``cpu.py`` has the rules and their reasons. Scores x are in units of ε from a centre. Nodes t stand on a lattice,
in blocks of T. What is per class, number m of exceedances and node lies flat, index ``m T + j``, so that the sweeps'
steps from m to m - 1 are loops over a row of k T numbers that the compiler makes vectors of; tail probabilities, which
all m share, are therefore written k times. They come from tables of Φ and φ at places of the lattice and Taylor's
series.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_losses._core.numba import compiled

__all__ = ["BLOCK", "LOG_TERMS", "PHASES", "Rules", "Tables", "expectations", "levels", "scatter"]

Doubles = NDArray[np.float64]
Whole = NDArray[np.int64]
Names = NDArray[np.int32]

BLOCK = 16  # T
BEFORE = 6.0  # deviations before the mean, where the lattice begins
MOST_BLOCKS = 4096
LOG_TERMS = 6
SHIFT = 3  # of the bits of a place, to the step that it is in
PHASES = 1 << SHIFT  # places of the tables in a step of the lattice
LEAST_DEPTH = 7.0  # how far below the centre a class is a candidate at least, in units of ε
# Under every probability: products of smaller ones would be denormal numbers, which are slow.
FLOOR = 1e-60
LEADING = 4  # times k: at least so many classes are swept above a crowd
LEADING_SPARE = 64  # classes above a crowd beyond these, at most
TOP = 16.0  # where the last of a crowd's cells begins
NONE: Any = np.int64(0)  # a plain 0 is a type of its own, for which all would be compiled once more
FASTEST = 0.75  # steps up to that many deviations of the k-th largest are worth trying

NEAR = 1.5  # how far from the centre, in units of ε, classes are counted for the choice of the first lattice
ALONE = 0.75  # the deviation of the k-th largest of classes whose scores are ε apart

borrowing = compiled("contract", counting=False)
summing = compiled("reassoc", "contract", "nsz", counting=False)


class Rules(NamedTuple):
    """How precise the quadrature is, and what it does with crowds."""

    depth: float  # of a candidate below the centre
    noise: float  # that is as good as impossible
    tail: float  # of F, where the lattice ends
    target: float  # of the error
    cap: float  # of what the two halves of the lattice may differ by
    most: float  # tail probability of a crowd's class
    crowded: int  # candidates beyond which there is a crowd
    cell: float  # width of a crowd's cell


class Tables(NamedTuple):
    """Functions of x - t on one of the lattices."""

    values: Doubles  # Φ and φ, flat (PHASES, 2, M)
    logs: Doubles  # Taylor's terms of log(1 - Φ), flat (PHASES, LOG_TERMS, M)
    length: int  # M
    step: float  # between the nodes, of PHASES places
    places: float  # per ε


class Room(NamedTuple):
    """What one thread needs for a row with C candidates, of which up to S are swept."""

    x: Doubles  # (C,)
    lead: Doubles  # (S,)
    points: Doubles  # (C,)
    masses: Doubles  # (C,)
    cells: Whole  # (C,)
    sizes: Whole
    active: Whole  # (S,)
    exceed: Doubles  # (S, k T)
    density: Doubles  # (S, k T)
    before: Doubles  # (S, (k + 1) T)
    state: Doubles  # ((k + 1) T,)
    follow: Doubles  # ((k + 1) T,)
    sums: Doubles  # (k, T)
    lanes: Doubles  # (4, T)
    cdf: Doubles  # (T,)
    slopes: Doubles  # (S,)
    crowd_slopes: Doubles  # (C,)


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
    counts: Whole,
    first: int,
    last: int,
) -> None:
    """The largest score, one that k classes reach, how many equal ones they count for, and how many lie near or above.

    Near is within a depth below. The number is -1 for odd rows: with NaN, with +inf or with fewer than k classes.
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


@borrowing
def _maxima(s: Doubles, maxima: Doubles, sums: Doubles) -> None:
    """The largest score of each group, class c belonging to group ``c mod G``, and the sum."""
    groups = len(maxima)
    for g in range(groups):
        maxima[g] = s[g]
        sums[g] = s[g]
    for start in range(groups, len(s), groups):
        part = s[start : start + groups]
        for g in range(len(part)):
            v = part[g]
            sums[g] += v  # NaN if there is one
            maxima[g] = v if v > maxima[g] else maxima[g]


@borrowing
def _best(maxima: Doubles, sums: Doubles, best: Doubles) -> bool:
    """The k largest, descending; whether there is NaN, +inf, or not so many."""
    k = len(best)
    best[:] = -np.inf
    odd = False
    for g in range(len(maxima)):
        v = maxima[g]
        odd |= sums[g] != sums[g] or v == np.inf
        if v > best[k - 1]:
            place = k - 1
            while place > 0 and best[place - 1] < v:
                best[place] = best[place - 1]
                place -= 1
            best[place] = v
    return odd or best[k - 1] == -np.inf


@summing
def _count(s: Doubles, low: float) -> int:
    count = 0
    for c in range(len(s)):
        count += 1 if s[c] >= low else 0
    return count


@borrowing
def _place(x: float, tables: Tables) -> tuple[int, int, float]:
    """Phase and first entry of the tables for x - t at a block's nodes, and how far from the place x is."""
    place = math.floor(x * tables.places + 0.5)
    cell = int(place)
    first = min(max((tables.length >> 1) - (cell >> SHIFT), 0), tables.length - BLOCK)
    return cell & (PHASES - 1), first, x - place / tables.places


@borrowing
def _tails(x: float, tables: Tables, exceed: Doubles, density: Doubles) -> None:
    """Φ and φ at ``x - j h``, for x from the block's first node, by Taylor's series about the tables' places."""
    phase, first, d = _place(x, tables)
    first += phase * 2 * tables.length
    tail = tables.values[first : first + BLOCK]
    first += tables.length
    peak = tables.values[first : first + BLOCK]
    second = d * d
    c0 = d * (1.0 - second * (1.0 / 6.0 - second / 40.0))
    c1 = second * (second / 8.0 - 0.5)
    c2 = second * d * (1.0 / 6.0 - second / 20.0)
    c3, c4 = -second * second / 24.0, second * second * d / 120.0
    shrink = 1.0 - second * (0.5 - second / 8.0)
    start = x - d
    for j in range(BLOCK):
        u = start - tables.step * j
        f = peak[j]
        exceed[j] = tail[j] + f * (c0 + u * (c1 + u * (c2 + u * (c3 + u * c4))))
        w = u * d
        w = 1.0 - w * (1.0 - w * (0.5 - w * (1.0 / 6.0 - w * (1.0 / 24.0 - w * (1.0 / 120.0)))))
        density[j] = f * shrink * w


@borrowing
def _logs(x: float, tables: Tables, out: Doubles) -> None:
    """``log P(X <= t)``."""
    phase, first, d = _place(x, tables)
    d *= tables.places
    first += (phase + 1) * LOG_TERMS * tables.length
    for j in range(BLOCK):
        out[j] = 0.0
    for _ in range(LOG_TERMS):
        first -= tables.length
        term = tables.logs[first : first + BLOCK]
        for j in range(BLOCK):
            out[j] = out[j] * d + term[j]


@borrowing
def _repeat(values: Doubles, size: int) -> None:
    for q in range(size - BLOCK):
        values[q + BLOCK] = values[q]


@borrowing
def _add_class(state: Doubles, before: Doubles, exceed: Doubles, size: int) -> None:
    """The numbers of exceedances with one more class; those without it are kept."""
    for q in range(size + BLOCK):
        before[q] = state[q]
    for q in range(size):
        state[q + BLOCK] = before[q + BLOCK] + exceed[q] * (before[q] - before[q + BLOCK])


@summing
def _add_class_behind(
    follow: Doubles, before: Doubles, exceed: Doubles, density: Doubles, size: int
) -> float:
    """What the class adds to its slope, given the classes before and behind it; then it is one of those behind."""
    share = 0.0
    for q in range(size):
        v = follow[q]
        share += before[q + BLOCK] * v * density[q]
        follow[q] = v + exceed[q] * (follow[q + BLOCK] - v)
    return share


@borrowing
def _crowd_start(count: int, start: float, tables: Tables, k: int, most: float, room: Room) -> None:
    """The probabilities that exactly m < k of the crowd exceed the nodes, by power sums and Newton's identities."""
    sums, state = room.sums, room.state
    exceed, ratio, power = room.lanes[0], room.lanes[1], room.lanes[2]
    sums[:k] = 0.0
    for i in range(count):
        _logs(room.points[i] - start, tables, ratio)
        _tails(room.points[i] - start, tables, exceed, power)
        mass, total = room.masses[i], sums[0]
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
    """``Σ_t φ(t - x) P(exactly k - 1 of all but the class at x exceed t)``, by dividing the class out of all."""
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


@borrowing
def _active(
    x: Doubles, swept: int, start: float, end: float, k: int, noise: float, active: Whole
) -> tuple[int, int]:
    """How many of the classes swept may be on either side of a node, and what is left of k for them."""
    number = 0
    for i in range(swept):
        if x[i] + noise > start:
            if x[i] - noise > end:
                k -= 1
            else:
                active[number] = i
                number += 1
    return number, k


@borrowing
def _forward(
    start: float, number: int, count: int, x: Doubles, tables: Tables, k: int, most: float, room: Room
) -> None:
    """F at the nodes, and the probabilities of m exceedances before each active class, on top of the crowd's."""
    state, size = room.state, k * BLOCK
    if count:
        _crowd_start(count, start, tables, k, most, room)
    else:
        state[: size + BLOCK] = FLOOR
        state[BLOCK : 2 * BLOCK] = 1.0
    for a in range(number):
        exceed = room.exceed[a]
        _tails(x[room.active[a]] - start, tables, exceed, room.density[a])
        _repeat(exceed, size)
        _add_class(state, room.before[a], exceed, size)
    for m in range(1, k + 1):
        part = state[m * BLOCK : (m + 1) * BLOCK]
        for j in range(BLOCK):
            room.cdf[j] += part[j]


@borrowing
def _backward(start: float, number: int, count: int, tables: Tables, k: int, most: float, room: Room) -> None:
    """Adds to the slopes of all who can be the k-th largest in the block."""
    follow, size = room.follow, k * BLOCK
    exceed, density, rest = room.lanes[0], room.lanes[1], room.lanes[2]
    for i in range(count):
        _tails(room.points[i] - start, tables, exceed, density)
        room.crowd_slopes[i] += _crowd_slope(room.state, exceed, density, rest, k, most)
    follow[: size + BLOCK] = FLOOR
    follow[size - BLOCK : size] = 1.0
    for a in range(number - 1, -1, -1):
        _repeat(room.density[a], size)
        room.slopes[room.active[a]] += _add_class_behind(
            follow, room.before[a], room.exceed[a], room.density[a], size
        )


@borrowing
def _block(
    x: Doubles,
    swept: int,
    count: int,
    start: float,
    tables: Tables,
    k: int,
    rules: Rules,
    with_slope: bool,
    room: Room,
) -> None:
    """F at the nodes of a block, and what the block adds to the slopes."""
    end = start + (BLOCK - 1) * tables.step
    number, left = _active(x, swept, start, end, k, rules.noise, room.active)
    room.cdf[:] = 0.0
    if left > 0:
        _forward(start, number, count, x, tables, left, rules.most, room)
        if with_slope:
            _backward(start, number, count, tables, left, rules.most, room)


@borrowing
def _march(
    x: Doubles,
    swept: int,
    count: int,
    tables: Tables,
    k: int,
    rules: Rules,
    with_slope: bool,
    origin: int,
    room: Room,
) -> tuple[float, float, float]:
    """The mean, how far its two ways by every other node are apart, and the second moment: blocks up, then down.

    With G = 1 - F from 0 on and -F below, they are ∫ G dt and 2 ∫ t G dt, whose kink at 0 costs the rule h² / 6.
    """
    cdf = room.cdf
    step = tables.step
    even, odd, moment, lowest = 0.0, 0.0, 0.0, 0.0
    origin -= origin % 2
    first, last = origin, origin
    room.slopes[:swept] = 0.0
    room.crowd_slopes[:count] = 0.0
    for direction in (1, -1):
        for _ in range(MOST_BLOCKS):
            if direction < 0 and lowest <= rules.tail:
                break
            at = last if direction > 0 else first - BLOCK
            _block(x, swept, count, at * step, tables, k, rules, with_slope, room)
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
    return mean, error, 2.0 * step * step * moment - step * step / 6.0


@compiled()
def _room(classes: int, swept: int, k: int, cells: int) -> Room:
    size = k * BLOCK
    return Room(
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


@borrowing
def _candidates(s: Doubles, centre: float, epsilon: float, depth: float, x: Doubles, names: Names) -> None:
    low, total = centre - epsilon * depth, 0
    for c in range(len(s)):
        if s[c] >= low and total < len(names):
            x[total] = (s[c] - centre) / epsilon
            names[total] = c
            total += 1


@borrowing
def _kept(total: int, rivals: float, depths: Doubles, x: Doubles, names: Names) -> int:
    """Leaves out what so few candidates allow to be left out."""
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


@borrowing
def _bound(total: int, k: int, rules: Rules, room: Room) -> int:
    """The first cell above the crowd, for which the classes are put into cells."""
    top = len(room.sizes) - 1
    room.sizes[:] = 0
    for i in range(total):
        at = int(min((room.x[i] + rules.depth) / rules.cell, float(top)))
        room.cells[i] = at
        room.sizes[at] += 1
    bound, above = top, room.sizes[top]
    while bound > 0 and above < LEADING * k:
        bound -= 1
        above += room.sizes[bound]
    return bound + 1 if above > LEADING * k + LEADING_SPARE else bound


@borrowing
def _within(x: float, cell: int, rules: Rules) -> float:
    """Where in its cell a class lies, from -1 to 1."""
    return ((x + rules.depth) / rules.cell - cell) * 2.0 - 1.0


@borrowing
def _points(
    total: int, bound: int, inverse: Doubles, moments: Doubles, rules: Rules, room: Room
) -> tuple[int, int]:
    """The classes above the crowd, and the crowd's points: of dense cells a few with masses, of others the classes."""
    orders = len(inverse)
    swept, count = 0, 0
    moments[:bound] = 0.0
    for i in range(total):
        at = room.cells[i]
        if at >= bound:
            room.lead[swept] = room.x[i]
            swept += 1
        elif room.sizes[at] > orders:
            place, power = _within(room.x[i], at, rules), 1.0
            own = moments[at]
            for m in range(orders):
                own[m] += power
                power *= place
        else:
            room.points[count] = room.x[i]
            room.masses[count] = 1.0
            count += 1
    for at in range(bound):
        if room.sizes[at] > orders:
            for m in range(orders):
                mass = 0.0
                for j in range(orders):
                    mass += inverse[j, m] * moments[at, j]
                place = 0.5 + 0.5 * math.cos(math.pi * (m + 0.5) / orders)
                room.points[count] = (at + place) * rules.cell - rules.depth
                room.masses[count] = mass
                count += 1
    return swept, count


@borrowing
def _spread(
    total: int,
    bound: int,
    inverse: Doubles,
    terms: Doubles,
    step: float,
    rules: Rules,
    room: Room,
    out: Doubles,
) -> None:
    """The slopes of the classes, from those of the swept and of the crowd's points."""
    orders = len(inverse)
    alone = 0
    for i in range(total):
        if room.cells[i] < bound and room.sizes[room.cells[i]] <= orders:
            alone += 1
    for at in range(bound):
        if room.sizes[at] > orders:
            for j in range(orders):
                term = 0.0
                for m in range(orders):
                    term += inverse[j, m] * room.crowd_slopes[alone + m]
                terms[at, j] = term
            alone += orders
    swept, count = 0, 0
    for i in range(total):
        at = room.cells[i]
        if at >= bound:
            value = room.slopes[swept]
            swept += 1
        elif room.sizes[at] > orders:
            place, own = _within(room.x[i], at, rules), terms[at]
            value = own[orders - 1]
            for m in range(orders - 2, -1, -1):
                value = value * place + own[m]
            value = max(value, 0.0)
        else:
            value = room.crowd_slopes[count]
            count += 1
        out[i] = value * step


@borrowing
def _missing(swept: int, count: int, step: float, room: Room) -> float:
    """How far the slopes' sum is from 1."""
    total = 0.0
    for i in range(swept):
        total += room.slopes[i]
    for i in range(count):
        total += room.crowd_slopes[i] * room.masses[i]
    return abs(step * total - 1.0)


@borrowing
def _level(lattices: tuple[Tables, ...], level: int, deviation: float) -> int:
    """The first lattice from a level on that is fine enough for a deviation of the k-th largest."""
    while level < len(lattices) - 1 and lattices[level].step > FASTEST * deviation:
        level += 1
    return level


@borrowing
def _quadrature(
    x: Doubles,
    swept: int,
    count: int,
    total: int,
    lattices: tuple[Tables, ...],
    k: int,
    rules: Rules,
    with_slope: bool,
    room: Room,
) -> tuple[float, float]:
    """The mean and the step, on the first lattice whose halves agree; of a crowd, the first look is at F alone."""
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
        mean, error, square = _march(x, swept, count, tables, k, rules, sloping, origin, room)
        if sloping:
            error = max(error, _missing(swept, count, step, room))
        allowed = rules.target * math.exp(min(50.0, 1.5 * (math.pi * narrowest / step) ** 2))
        good = error <= min(rules.cap, allowed) or level == len(lattices) - 1
        if good and (sloping or not with_slope):
            return mean, step
        if not good:
            deviation = math.sqrt(max(square - mean * mean, 0.2 * step * step))
            level = _level(lattices, level + 1, deviation)
            origin = math.floor((mean - BEFORE * deviation) / lattices[level].step)
        sloping = with_slope


@compiled()
def expectations(
    k: int,
    epsilon: float,
    scores: Doubles,
    centre: Doubles,
    rivals: Doubles,
    offsets: Whole,
    counts: Whole,
    depths: Doubles,
    lattices: tuple[Tables, ...],
    inverse: Doubles,
    rules: Rules,
    with_slope: bool,
    shift: Doubles,
    names: Names,
    shares: Doubles,
    first: int,
    last: int,
) -> None:
    """The expected k-th largest from the centre in units of ε, and which classes are it with which probability."""
    widest = max(1, counts[first:last].max())
    swept = widest if widest <= rules.crowded else max(rules.crowded, LEADING * k + LEADING_SPARE)
    cells = int((rules.depth + TOP) / rules.cell) + 1
    room = _room(widest, swept, k, cells)
    moments = np.empty((cells, len(inverse)))
    for row in range(first, last):
        total, place = counts[row], offsets[row]
        _candidates(scores[row], centre[row], epsilon, rules.depth, room.x, names[place : place + total])
        total = _kept(total, rivals[row], depths, room.x, names[place : place + total])
        counts[row] = total
        if total > rules.crowded:
            bound = _bound(total, k, rules, room)
            swept, count = _points(total, bound, inverse, moments, rules, room)
            mean, step = _quadrature(room.lead, swept, count, total, lattices, k, rules, with_slope, room)
            if with_slope:
                own = shares[place : place + total]
                _spread(total, bound, inverse, moments, step, rules, room, own)
        else:
            mean, step = _quadrature(room.x, total, NONE, total, lattices, k, rules, with_slope, room)
            if with_slope:
                for i in range(total):
                    shares[place + i] = room.slopes[i] * step
        shift[row] = mean


@compiled()
def scatter(
    names: Names,
    shares: Doubles,
    offsets: Whole,
    counts: Whole,
    gradient: Doubles,
    out: Doubles,
    first: int,
    last: int,
) -> None:
    """Each row's shares times its gradient, where they belong."""
    for row in range(first, last):
        own = out[row]
        for i in range(offsets[row], offsets[row] + counts[row]):
            own[names[i]] = shares[i] * gradient[row]
