"""CPU kernels of the soft top-K's Gaussian shape.

With ``z = b - x`` a membership is ``Φ(-z) = φ(z) M(z)``, where M is Mills' ratio; for z < 0 it is ``1 - φ(z) M(|z|)``.
Densities and memberships are in units of φ at ``max(b, 0)``, the largest density if b is above 0. So they never all
underflow, however far the threshold is from the scores. What the K best lack of 1 is the same sum, with their distances
below the K-th score and ``gap - b`` in place of b, where ``gap`` is the distance of the K-th from the (K+1)-th score.
"""

from __future__ import annotations

import math

import numpy as np

from topk_losses._core.numba_kernels import (
    LOG2E,
    ONE,
    Floats,
    Integers,
    contracting,
    inner,
    powers_of_two,
    scale_by,
    sum_of,
    summing,
)

__all__ = ["gaussian_densities", "gaussian_of_label", "gaussian_threshold", "scratch_for"]


MOST_STEPS = 100  # three or four are needed
SMALL = 5e-4  # the size of a last step: the remaining error is a quarter of its square
TILE = 512  # classes processed at once, which fit into the first-level cache
FURTHEST = 1e18  # the bound of distances, so that their squares are finite
FAR = np.float32(-30)  # lower distances, whose membership is 0, are raised to this for the first guess
ROOT = math.sqrt(2 * math.pi)
WHOLE, HALF, ZERO = np.float32(ROOT), np.float32(LOG2E / 2), np.float32(0)

# (t + 4) M(t) for t >= 0 as a polynomial in (t - 4) / (t + 4), with a relative error of 4e-8 before rounding.
FOUR, EIGHT = np.float32(4), np.float32(8)
M0, M1, M2 = np.float32(1.89321905041), np.float32(-1.52377028095), np.float32(0.970410123558)
M3, M4, M5 = np.float32(-0.467553658441), np.float32(0.151387705869), np.float32(-0.0188282244837)
M6, M7 = np.float32(-0.00871205692597), np.float32(0.00391673720187)
M8, M9 = np.float32(0.000323453865721), np.float32(-0.00039288920514)


def scratch_for(k: int) -> Floats:
    """A buffer for one thread."""
    return np.empty(k + 2 * TILE, np.float32)


@contracting
def _mills(t: np.float32) -> np.float32:
    """Mills' ratio ``M(t) = Φ(-t) / φ(t)`` for t >= 0."""
    r = ONE / (t + FOUR)
    y = ONE - EIGHT * r
    ratio = M5 + y * (M6 + y * (M7 + y * (M8 + y * M9)))
    return (M0 + y * (M1 + y * (M2 + y * (M3 + y * (M4 + y * ratio))))) * r


@contracting
def _distances(row: Floats, reference: np.float32, scale: np.float32, out: Floats) -> None:
    furthest = np.float32(-FURTHEST)
    for j in range(len(row)):
        x = (row[j] - reference) * scale
        out[j] = x if x > furthest else furthest


@contracting
def _densities(x: Floats, b: np.float32, unit: np.float32, exponents: Floats, out: Floats) -> None:
    """Write ``φ(b - x) / φ(unit)`` with ``unit = max(b, 0)``."""
    off, both = unit - b, unit + b
    for j in range(len(x)):
        exponents[j] = (x[j] + off) * (both - x[j]) * HALF
    powers_of_two(exponents, ZERO, ONE, ONE, out)


@summing
def _part(x: Floats, densities: Floats, b: np.float32) -> tuple[float, float]:
    total, slope = ZERO, ZERO
    for j in range(len(x)):
        z = b - x[j]
        one = densities[j] * _mills(z if z > ZERO else -z)
        total += one if z > ZERO else WHOLE - one
        slope += densities[j]
    return np.float64(total), np.float64(slope)


@inner
def _sums(x: Floats, level: float, scratch: Floats) -> tuple[float, float]:
    """The sums of ``Φ(x_j - b)`` and of the densities, in units of φ at ``max(b, 0)``."""
    b = np.float32(min(level, FURTHEST))
    total, slope = 0.0, 0.0
    for start in range(0, len(x), TILE):
        part = x[start : start + TILE]
        densities = scratch[: len(part)]
        _densities(part, b, max(b, ZERO), scratch[TILE : TILE + len(part)], densities)
        one, two = _part(part, densities, b)
        total += one
        slope += two
    return total, slope


@summing
def _moments(x: Floats) -> tuple[float, float]:
    total, squares = ZERO, ZERO
    for j in range(len(x)):
        one = x[j] if x[j] > FAR else FAR
        total += one
        squares += one * one
    return np.float64(total), np.float64(squares)


@inner
def _start(x: Floats, quantile: float) -> float:
    """A first guess of b: the sum of memberships would be K if the distances were normally distributed."""
    total, squares = _moments(x)
    mean = total / len(x)
    return mean - quantile * math.sqrt(1 + max(squares / len(x) - mean * mean, 0.0))


@inner
def _prepared(row: Floats, places: Integers, tau: float, x: Floats, near: Floats) -> float:
    """Write the others' distances from the (K+1)-th score, and the K best's below the K-th; return the gap."""
    k = len(places) - 1
    reference, kth = row[places[k]], np.float64(row[places[k - 1]])
    _distances(row, reference, np.float32(1 / tau), x)
    for j in range(k):
        x[places[j]] = ZERO
        near[j] = max((kth - np.float64(row[places[j]])) / tau, -FURTHEST)
    return (kth - np.float64(reference)) / tau


@inner
def _leave_out(x: Floats, places: Integers) -> None:
    for j in range(len(places) - 1):
        x[places[j]] = np.float32(-FURTHEST)


@inner
def gaussian_threshold(
    row: Floats,
    places: Integers,
    tau: float,
    below: float,
    beyond: float,
    quantile: float,
    x: Floats,
    scratch: Floats,
) -> float:
    """The threshold relative to the (K+1)-th score, in units of τ."""
    near = scratch[2 * TILE : 2 * TILE + len(places) - 1]
    gap = _prepared(row, places, tau, x, near)
    low, high = -below, gap + beyond
    b = min(max(_start(x, quantile), low), high)
    _leave_out(x, places)
    for _ in range(MOST_STEPS):
        lacking, slope = _sums(near, gap - b, scratch)
        held, other = _sums(x, b, scratch)
        ours, theirs = max(gap - b, 0.0), max(b, 0.0)
        value = math.log(lacking / held) + (theirs - ours) * (theirs + ours) / 2
        if value > 0:
            high = b
        else:
            low = b
        step = b - value / (slope / lacking + other / held)
        if abs(step - b) < SMALL:
            return step
        b = step if low <= step <= high else (low + high) / 2
    return b


@inner
def gaussian_of_label(x: float, by_log: bool) -> tuple[float, float]:
    """The loss of a label at distance x from the threshold, and minus its derivative with respect to x."""
    ratio = np.float64(_mills(np.float32(min(abs(x), FURTHEST))))
    density = math.exp(-x * x / 2) / ROOT
    if by_log and x < 0:
        return x * x / 2 - math.log(ratio / ROOT), 1 / ratio
    tail = density * ratio
    if by_log:
        return -math.log1p(-tail), density / (1 - tail)
    return (tail if x > 0 else 1 - tail), density


@inner
def _of_the_best(row: Floats, places: Integers, tau: float, level: float, j: int) -> float:
    """The density of the j-th best class in units of φ at ``max(level, 0)``, with ``level = gap - b``."""
    kth = np.float64(row[places[len(places) - 2]])
    x, unit = (kth - np.float64(row[places[j]])) / tau, max(level, 0.0)
    return math.exp((x + unit - level) * (unit + level - x) / 2)


@inner
def _of_the_others(
    row: Floats, places: Integers, tau: float, b: float, out: Floats, scratch: Floats
) -> float:
    """Write the others' densities in units of φ at ``max(b, 0)``, and 0 for the K best; return the sum."""
    reference, level, scale, total = row[places[-1]], np.float32(min(b, FURTHEST)), np.float32(1 / tau), 0.0
    for start in range(0, len(row), TILE):
        part = out[start : start + TILE]
        x, exponents = scratch[: len(part)], scratch[TILE : TILE + len(part)]
        _distances(row[start : start + TILE], reference, scale, x)
        _densities(x, level, max(level, ZERO), exponents, part)
    for j in range(len(places) - 1):
        out[places[j]] = ZERO
    for start in range(0, len(row), TILE):
        total += np.float64(sum_of(out[start : start + TILE]))
    return total


@inner
def gaussian_densities(
    row: Floats, places: Integers, tau: float, b: float, factor: float, out: Floats, scratch: Floats
) -> None:
    """Write ``factor · F'_j / Σ F'``."""
    k, best = len(places) - 1, 0.0
    level = (np.float64(row[places[k - 1]]) - np.float64(row[places[k]])) / tau - b
    others = _of_the_others(row, places, tau, b, out, scratch)
    for j in range(k):
        best += _of_the_best(row, places, tau, level, j)
    ours, theirs = max(level, 0.0), max(b, 0.0)
    least = min(ours, theirs)
    ahead = math.exp((least - ours) * (least + ours) / 2)
    behind = math.exp((least - theirs) * (least + theirs) / 2)
    each = factor / (best * ahead + others * behind)
    scale_by(out, np.float32(each * behind))
    for j in range(k):
        out[places[j]] = each * ahead * _of_the_best(row, places, tau, level, j)
