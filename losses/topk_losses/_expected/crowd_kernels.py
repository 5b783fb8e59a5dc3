"""Crowds: representing many close classes by a few points with masses, and interpolating slopes for the classes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topk_losses._expected.shared_kernels import LEADING, LEADING_SPARE, Room, Rules, borrowing

__all__ = ["bound", "points", "spread"]

Doubles = NDArray[np.float64]


@borrowing
def bound(total: int, k: int, rules: Rules, room: Room) -> int:
    """Assign the classes to cells, and return the first cell above the crowd."""
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
    """The position of a class in its cell, from -1 to 1."""
    return ((x + rules.depth) / rules.cell - cell) * 2.0 - 1.0


@borrowing
def points(
    total: int, bound: int, inverse: Doubles, moments: Doubles, rules: Rules, room: Room
) -> tuple[int, int]:
    """Write the classes above the crowd and the crowd's points, and return both numbers.

    Points are Chebyshev points with masses in dense cells, and the classes themselves in other cells.
    """
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
def spread(
    total: int,
    bound: int,
    inverse: Doubles,
    terms: Doubles,
    step: float,
    rules: Rules,
    room: Room,
    out: Doubles,
) -> None:
    """Write the slopes of all classes, from those of the swept classes and of the crowd's points."""
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
