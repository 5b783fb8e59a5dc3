"""The positive recursion over the values taken out, and its adjoint, as explained in ``leading.py``."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topk_losses._core.numba_kernels import LOG2E, borrowing, contracting, summing
from topk_losses._smooth_svm.power_sums_kernels import product
from topk_losses._smooth_svm.shared_kernels import Room

__all__ = ["entries", "recursion", "totals"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

FURTHEST = 2.0**40  # the bound of exponents
BIAS_OF_DOUBLES, ROUNDER_OF_DOUBLES, FRACTION_OF_DOUBLES = 1023.0, 1.5 * 2.0**52, np.int64(52)


@borrowing
def _power_of_two(exponent: float) -> float:
    """2 to the power of an integer of at most 1023; 0 below -1022."""
    biased = exponent + BIAS_OF_DOUBLES
    biased = biased if biased > 0 else 0.0
    return np.int64(np.float64(biased + ROUNDER_OF_DOUBLES).view(np.int64) << FRACTION_OF_DOUBLES).view(
        np.float64
    )


@borrowing
def _ratios(mantissa: float, exponent: float, inverse: Doubles, exponents: Doubles, out: Doubles) -> None:
    """Write ``e_j / e_m`` for the first m."""
    for m in range(len(out)):
        out[m] = mantissa * inverse[m] * _power_of_two(exponent - exponents[m])


@contracting
def _grow(before: Doubles, ratios: Doubles, after: Doubles) -> None:
    """Write Ê with one further value."""
    after[0] = 1
    for m in range(len(ratios)):
        after[m + 1] = before[m + 1] + ratios[m] * before[m]


@borrowing
def recursion(count: int, k: int, scale: float, room: Room) -> None:
    """Write ``d_jm``, Ê before and after each value taken out, and ``Π_{m < l <= K} e_K / e_l`` for m = 0 … K."""
    exponents, mantissas, tables, weights = room.exponents, room.mantissas, room.tables, room.weights
    for j in range(count):
        exponent = float(np.float64(room.taken[j]) - np.float64(room.taken[k - 1])) * (scale * LOG2E)
        exponent = max(-FURTHEST, min(FURTHEST, exponent))
        exponents[j] = math.floor(exponent)
        mantissas[j] = math.exp((exponent - exponents[j]) / LOG2E)
    weights[k] = 1
    for m in range(k - 1, -1, -1):
        weights[m] = weights[m + 1] / mantissas[m] * _power_of_two(-exponents[m])
        room.start[m] = 1 / mantissas[m]
    tables[0, :] = 0
    tables[0, 0] = 1
    for j in range(count):
        ratios, first = room.ratios[j, :k], min(j + 1, k)
        _ratios(mantissas[j], exponents[j], room.start[:first], exponents[:first], ratios[:first])
        ratios[first:] = 0
        _grow(tables[j], ratios, tables[j + 1])


@borrowing
def totals(tops: Doubles, room: Room, k: int) -> None:
    """Write the polynomials of all classes in units of e_K."""
    for m in range(k + 1):
        room.start[m] = tops[m] * room.weights[m]
    for q in range(k + 1):
        room.polynomials[q] = product(room.start[: q + 1], room.rest[: q + 1])


@summing
def _step_back(start: Doubles, ratios: Doubles, before: Doubles) -> float:
    """One step of the adjoint recursion; return the entry of the value."""
    share = 0.0
    for m in range(len(ratios)):
        flow = start[m + 1] * ratios[m]
        start[m] += flow
        share += flow * before[m]
    return share


@borrowing
def entries(count: int, k: int, room: Room, out: Floats) -> None:
    """Write ``π^(K-1) - π^(K)`` of the values taken out."""
    last, before = room.polynomials[k], room.polynomials[k - 1]
    for m in range(k + 1):
        start = -room.rest[k - m] / last
        if m < k:
            start += room.rest[k - 1 - m] / before
        room.start[m] = start * room.weights[m]
    for j in range(count - 1, -1, -1):
        out[j] = _step_back(room.start, room.ratios[j, :k], room.tables[j])
