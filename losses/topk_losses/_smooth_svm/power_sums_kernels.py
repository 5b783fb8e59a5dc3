"""Elementary symmetric polynomials from power sums; the proof is in ``symmetric.py``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topk_losses._core.numba_kernels import SUMMED, Doubles, Floats, inner, summing

__all__ = ["Buffers", "enough_powers", "newton", "power_sums", "product", "store_coefficients", "two_sums"]


HEADER = 4  # numbers kept per row before its lists: sigmoid, reference, and the lengths of both lists
TOLERANCE = 2e-7  # truncation error allowed in log σ_K; the gradient of a row sums to 0 for any truncation
INFINITE = np.float32(np.inf)


class Buffers(NamedTuple):
    """Buffers of one thread for a row: L classes, G groups, up to M values taken out."""

    values: Floats  # (L,)
    power: Floats  # (SUMMED,)
    maxima: Floats  # (G,)
    group_values: Floats  # (G,)
    taken: Floats  # (M,)
    exponents: Doubles  # (M,)
    mantissas: Doubles  # (M,)
    ratios: Doubles  # (M, K)
    tables: Doubles  # (M + 1, K + 1)
    sums: Doubles  # (K + 3,)
    rest: Doubles  # (K + 1,)
    weights: Doubles  # (K + 1,)
    start: Doubles  # (K + 1,)
    polynomials: Doubles  # (K + 1,)


@summing
def _sums(values: Floats) -> tuple[np.float32, np.float32]:
    one = two = np.float32(0)
    for j in range(len(values)):
        one += values[j]
        two += values[j] * values[j]
    return one, two


@inner
def two_sums(values: Floats) -> tuple[float, float]:
    """The power sums p_1 and p_2."""
    first = second = np.float64(0)
    for start in range(0, len(values), SUMMED):
        one, two = _sums(values[start : start + SUMMED])
        first += np.float64(one)
        second += np.float64(two)
    return first, second


@summing
def _next_sums(values: Floats, power: Floats) -> tuple[np.float32, np.float32]:
    """The sums of ``power · values`` and of ``power · values²``; the latter overwrites ``power``."""
    one = two = np.float32(0)
    for j in range(len(values)):
        odd = power[j] * values[j]
        even = odd * values[j]
        power[j] = even
        one += odd
        two += even
    return one, two


@inner
def power_sums(values: Floats, power: Floats, powers: int, sums: Doubles) -> None:
    """Write ``p_3 … p_r`` after p_1 and p_2, computing all powers of one block of values before the next block."""
    sums[3 : powers + 2] = 0
    if powers < 3:
        return
    for start in range(0, len(values), SUMMED):
        part = values[start : start + SUMMED]
        _square(part, power)
        for i in range(3, powers + 1, 2):
            one, two = _next_sums(part, power[: len(part)])
            sums[i] += one
            sums[i + 1] += two


@inner
def _square(values: Floats, out: Floats) -> None:
    for j in range(len(values)):
        out[j] = values[j] * values[j]


@inner
def enough_powers(least: int, k: int, kappa: float, mass: float) -> int:
    """The smallest r for which the power sums after the r-th change ``log σ_K`` by less than the tolerance."""
    powers, moved = least, mass * kappa**least
    while powers < k and moved > TOLERANCE * (powers + 1) * (1 - kappa):
        powers += 1
        moved *= kappa
    return powers


@summing
def product(left: Doubles, right: Doubles) -> float:
    """The sum of products of one array with the other in reverse order."""
    total, count = 0.0, len(left)
    for i in range(count):
        total += left[i] * right[count - 1 - i]
    return total


@inner
def newton(sums: Doubles, powers: int, k: int, out: Doubles) -> None:
    """Write σ_0 … σ_K from ``p_1 … p_r``, taking later sums as 0; a σ that rounding makes negative becomes 0."""
    for i in range(2, powers + 1, 2):
        sums[i] = -sums[i]
    out[0] = 1
    for m in range(1, k + 1):
        terms = min(m, powers)
        out[m] = max(product(sums[1 : terms + 1], out[m - terms : m]) / m, 0.0)


@inner
def store_coefficients(polynomials: Doubles, k: int, powers: int, unit: float, out: Floats) -> None:
    """Write ``(-unit)^i (σ_{K-i} / σ_K - σ_{K-1-i} / σ_{K-1})`` for i = 1 … r; ``unit`` rescales the values."""
    factor = -unit
    for i in range(1, powers + 1):
        share = polynomials[k - i] / polynomials[k]
        if i < k:
            share -= polynomials[k - 1 - i] / polynomials[k - 1]
        out[i - 1] = share * factor
        factor *= -unit
