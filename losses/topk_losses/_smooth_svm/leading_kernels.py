"""Taking the largest scores out of a row, and the recursion over them with its adjoint, see ``leading.py``."""

from __future__ import annotations

import functools
import math

import numpy as np

from topk_losses._core.numba_kernels import (
    LOG2E,
    LOWEST,
    ONE,
    SUMMED,
    Doubles,
    Floats,
    Keys,
    contracting,
    entry,
    inner,
    key_of,
    powers_of_two,
    summing,
)
from topk_losses._smooth_svm.power_sums_kernels import HEADER, INFINITE, Buffers, product, two_sums

__all__ = [
    "backward_buffer_for",
    "buffers_for",
    "entries",
    "kept_per_row",
    "largest_key",
    "largest_other",
    "most_taken",
    "parts_of",
    "recursion",
    "take_out",
    "totals",
]


LANES = 64  # the smallest number of groups
LOWEST_KEY = np.int32(-(2**31) + 2**23)
FURTHEST = 2.0**40  # the bound of exponents
BIAS_OF_DOUBLES, ROUNDER_OF_DOUBLES, FRACTION_OF_DOUBLES = 1023.0, 1.5 * 2.0**52, np.int64(52)


@entry
def most_taken(classes: int, k: int) -> int:
    """M, the largest number of values that are taken out of a row."""
    return min(3 * k, classes - 1)


@entry
def _groups_of(k: int) -> int:
    """G, the number of groups."""
    return LANES * (1 + 2 * k // LANES)


@functools.cache
def kept_per_row(classes: int, k: int) -> int:
    """How many numbers the gradient needs of a row: those of the header, r coefficients and two lists."""
    return HEADER + k + 2 * int(most_taken(classes, k))


def buffers_for(classes: int, k: int) -> tuple[Floats, Doubles]:
    """Buffers for one thread, which ``parts_of`` divides into parts."""
    floats, doubles = _lengths(classes, k)
    return np.empty(floats, np.float32), np.empty(doubles, np.float64)


@functools.cache
def _lengths(classes: int, k: int) -> tuple[int, int]:
    most, groups = most_taken(classes, k), _groups_of(k)
    return classes + SUMMED + 2 * groups + most, (2 * most + 1) * (k + 1) + 2 * most + 5 * (k + 3)


def backward_buffer_for(k: int) -> Floats:
    """A buffer for one thread in the backward pass."""
    return np.empty(SUMMED + k + 4, np.float32)


@inner
def parts_of(floats: Floats, doubles: Doubles, classes: int, k: int) -> Buffers:
    """The parts of these buffers."""
    most, groups = most_taken(classes, k), _groups_of(k)
    short = floats[classes:]
    square = doubles[2 * most :]
    rows = square[(2 * most + 1) * (k + 1) :]
    return Buffers(
        floats[:classes],
        short[:SUMMED],
        short[SUMMED : SUMMED + groups],
        short[SUMMED + groups : SUMMED + 2 * groups],
        short[SUMMED + 2 * groups :],
        doubles[:most],
        doubles[most : 2 * most],
        square[: most * (k + 1)].reshape((most, k + 1)),
        square[most * (k + 1) : (2 * most + 1) * (k + 1)].reshape((most + 1, k + 1)),
        rows[: k + 3],
        rows[k + 3 : 2 * (k + 3)],
        rows[2 * (k + 3) : 3 * (k + 3)],
        rows[3 * (k + 3) : 4 * (k + 3)],
        rows[4 * (k + 3) :],
    )


@inner
def largest_key(values: Floats) -> np.int32:
    """The largest value as an order-preserving integer: its search is vectorised, that of a float is not."""
    bits = values.view(np.int32)
    largest = LOWEST_KEY
    for j in range(len(bits)):
        key = key_of(bits[j])
        largest = key if key > largest else largest
    return largest


@inner
def largest_other(row: Floats, label: int) -> np.float32:
    """The largest score of the other classes; masked classes have the smallest finite score."""
    key = max(largest_key(row[:label]), largest_key(row[label + 1 :]))
    return np.int32(key_of(key)).view(np.float32)


@inner
def _group_maxima(row: Floats, label: int, maxima: Floats) -> None:
    """Write the largest score of the classes j, j + G, … for each j < G, without the label."""
    groups, classes = len(maxima), len(row)
    maxima[:] = LOWEST
    whole = classes - classes % groups
    for start in range(0, whole, LANES):
        part, best = row[start : start + LANES], maxima[start % groups : start % groups + LANES]
        for j in range(LANES):
            best[j] = part[j] if part[j] > best[j] else best[j]
    for j in range(whole, classes):
        maxima[j - whole] = max(row[j], maxima[j - whole])
    own = label % groups
    maxima[own] = LOWEST
    for j in range(own, classes, groups):
        if j != label:
            maxima[own] = max(row[j], maxima[own])


@inner
def _insert(value: np.float32, index: int, count: int, values: Floats, places: Keys) -> None:
    """Insert a value into the descending list of the first ``count``; the last value drops out."""
    j = count - 1
    while j > 0 and values[j - 1] < value:
        values[j] = values[j - 1]
        places[j] = places[j - 1]
        j -= 1
    values[j] = value
    places[j] = index


@inner
def _largest(row: Floats, label: int, k: int, maxima: Floats, values: Floats, places: Keys) -> None:
    """Write the K largest scores of the other classes, descending, and their classes."""
    values[:k] = -INFINITE
    for j in range(len(maxima)):
        if maxima[j] > values[k - 1]:
            _insert(maxima[j], 0, k, values, places)
    bound = values[k - 1]
    values[:k] = -INFINITE
    for group in range(len(maxima)):
        if maxima[group] >= bound:
            for j in range(group, len(row), len(maxima)):
                value = max(row[j], LOWEST)
                if value > values[k - 1] and j != label:
                    _insert(value, j, k, values, places)


@inner
def take_out(
    row: Floats, label: int, k: int, scale: np.float32, buffers: Buffers, places: Keys
) -> tuple[int, float]:
    """Take out the values too large for power sums; return their number and W.

    The remaining values are in ``buffers.values``, in units of the K-th largest.
    """
    values, taken, groups = buffers.values, buffers.taken, len(buffers.maxima)
    _group_maxima(row, label, buffers.maxima)
    _largest(row, label, k, buffers.maxima, taken, places)
    powers_of_two(row, taken[k - 1], scale, ONE, values)
    powers_of_two(buffers.maxima, taken[k - 1], scale, ONE, buffers.group_values)
    values[label] = 0
    for i in range(k):
        values[places[i]] = 0
    weight = 1 + two_sums(values)[0]
    threshold = weight / (2 * k)
    count = k
    for group in range(groups):
        if buffers.group_values[group] > threshold:
            for j in range(group, len(row), groups):
                if values[j] > threshold and count < len(taken):
                    taken[count] = row[j]
                    places[count] = j
                    values[j] = 0
                    count += 1
    return count, weight


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
