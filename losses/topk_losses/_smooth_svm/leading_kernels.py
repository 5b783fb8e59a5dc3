"""The positive recursion over the values taken out, and its adjoint, as explained in ``leading.py``."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topk_losses._core.numba_kernels import LOG2E, contracting, inner, summing
from topk_losses._smooth_svm.power_sums_kernels import product
from topk_losses._smooth_svm.shared_kernels import Buffers

__all__ = ["entries", "recursion", "totals"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

FURTHEST = 2.0**40  # the bound of exponents
BIAS_OF_DOUBLES, ROUNDER_OF_DOUBLES, FRACTION_OF_DOUBLES = 1023.0, 1.5 * 2.0**52, np.int64(52)


@inner
def _power_of_two(exponent: float) -> float:
    """2 to the power of an integer of at most 1023; 0 below -1022."""
    biased = exponent + BIAS_OF_DOUBLES
    biased = biased if biased > 0 else 0.0
    return np.int64(np.float64(biased + ROUNDER_OF_DOUBLES).view(np.int64) << FRACTION_OF_DOUBLES).view(
        np.float64
    )


@inner
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


@inner
def recursion(count: int, k: int, scale: float, buffers: Buffers) -> None:
    """Write ``d_jm``, Ê before and after each value taken out, and ``Π_{m < l <= K} e_K / e_l`` for m = 0 … K."""
    exponents, mantissas, tables, weights = (
        buffers.exponents,
        buffers.mantissas,
        buffers.tables,
        buffers.weights,
    )
    for j in range(count):
        exponent = float(np.float64(buffers.taken[j]) - np.float64(buffers.taken[k - 1])) * (scale * LOG2E)
        exponent = max(-FURTHEST, min(FURTHEST, exponent))
        exponents[j] = math.floor(exponent)
        mantissas[j] = math.exp((exponent - exponents[j]) / LOG2E)
    weights[k] = 1
    for m in range(k - 1, -1, -1):
        weights[m] = weights[m + 1] / mantissas[m] * _power_of_two(-exponents[m])
        buffers.start[m] = 1 / mantissas[m]
    tables[0, :] = 0
    tables[0, 0] = 1
    for j in range(count):
        ratios, first = buffers.ratios[j, :k], min(j + 1, k)
        _ratios(mantissas[j], exponents[j], buffers.start[:first], exponents[:first], ratios[:first])
        ratios[first:] = 0
        _grow(tables[j], ratios, tables[j + 1])


@inner
def totals(tops: Doubles, buffers: Buffers, k: int) -> None:
    """Write the polynomials of all classes in units of e_K."""
    for m in range(k + 1):
        buffers.start[m] = tops[m] * buffers.weights[m]
    for q in range(k + 1):
        buffers.polynomials[q] = product(buffers.start[: q + 1], buffers.rest[: q + 1])


@summing
def _step_back(start: Doubles, ratios: Doubles, before: Doubles) -> float:
    """One step of the adjoint recursion; return the entry of the value."""
    share = 0.0
    for m in range(len(ratios)):
        flow = start[m + 1] * ratios[m]
        start[m] += flow
        share += flow * before[m]
    return share


@inner
def entries(count: int, k: int, buffers: Buffers, out: Floats) -> None:
    """Write ``π^(K-1) - π^(K)`` of the values taken out."""
    last, before = buffers.polynomials[k], buffers.polynomials[k - 1]
    for m in range(k + 1):
        start = -buffers.rest[k - m] / last
        if m < k:
            start += buffers.rest[k - 1 - m] / before
        buffers.start[m] = start * buffers.weights[m]
    for j in range(count - 1, -1, -1):
        out[j] = _step_back(buffers.start, buffers.ratios[j, :k], buffers.tables[j])
