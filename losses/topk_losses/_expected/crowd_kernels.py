"""Crowds: representing many close classes by a few points with masses, and interpolating slopes for the classes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topk_losses._expected.shared_kernels import LEADING, LEADING_SPARE, Buffers, Rules, inner

__all__ = ["bound", "points", "spread"]

Doubles = NDArray[np.float64]


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
