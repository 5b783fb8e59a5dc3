r"""Kernels of the smooth top-K SVM for the CPU: a loop over rows, each read once forward and once backward.

The way is that of ``cuda_kernels.py``. With e = exp(s / (K τ)) in units of the largest, a row is *comparable* if its
mass is at least 3K: power sums then give the polynomials (``power_sums.py`` has the proof, and the bound by which the
number of sums is chosen, here for each row by itself). Else the K largest are taken out, and those others above
W / (2K) of the K-th largest, where W is the mass of all but the K - 1 largest in its units: κ is at most 1/2 for what
is left, and there are at most 2K such others.

To find the largest, each class belongs to one of a few groups whose maxima are made on the way: what is above the K-th
largest of the maxima is in groups whose maximum is, so that few groups are looked into.

The values taken out run through the positive recursion of ``leading.py`` in float64. A factor ``e_j / e_m`` is the
product of two mantissas and a power of two, whatever the scores' range. The adjoint recursion, which gives the
inclusion probabilities, is linear in its start: it runs once, for ``π^(K-1) - π^(K)``.

What is over the classes is float32, in blocks whose sums are added in float64; what is per row is float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_losses._core.numba_kernels import (
    LOG2E,
    LOWEST,
    ONE,
    SUMMED,
    borrowing,
    contracting,
    key_of,
    powers_of_two,
    summing,
)

__all__ = ["HEADER", "most_taken", "room_behind", "room_for", "smooth_backward", "smooth_forward"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Whole = NDArray[np.int32]

HEADER = 4  # numbers kept of a row before its coefficients: sigmoid, reference, and how many of both lists
LANES = 64  # the least number of groups
TOLERANCE = 2e-7  # what may be left out of log σ_K; the gradient's row still sums to 0, whatever is left out
INFINITE = np.float32(np.inf)
LOWEST_KEY = np.int32(-(2**31) + 2**23)
FURTHEST = 2.0**40  # exponents beyond count as this

BIAS_OF_DOUBLES, ROUNDER_OF_DOUBLES, FRACTION_OF_DOUBLES = 1023.0, 1.5 * 2.0**52, np.int64(52)


class Room(NamedTuple):
    """What one thread needs for a row: L classes, G groups, up to M values taken out."""

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


@borrowing
def most_taken(classes: int, k: int) -> int:
    """The most values that are taken out of a row."""
    return min(3 * k, classes - 1)


@summing
def _sums(values: Floats) -> tuple[np.float32, np.float32]:
    one = two = np.float32(0)
    for j in range(len(values)):
        one += values[j]
        two += values[j] * values[j]
    return one, two


@borrowing
def _two_sums(values: Floats) -> tuple[float, float]:
    """p_1 and p_2."""
    first = second = np.float64(0)
    for start in range(0, len(values), SUMMED):
        one, two = _sums(values[start : start + SUMMED])
        first += np.float64(one)
        second += np.float64(two)
    return first, second


@summing
def _next_sums(values: Floats, power: Floats) -> tuple[np.float32, np.float32]:
    """The sums of ``power · values`` and ``power · values²``, which becomes the power."""
    one = two = np.float32(0)
    for j in range(len(values)):
        odd = power[j] * values[j]
        even = odd * values[j]
        power[j] = even
        one += odd
        two += even
    return one, two


@borrowing
def _power_sums(values: Floats, power: Floats, powers: int, sums: Doubles) -> None:
    """``p_3 … p_r`` behind p_1 and p_2, which are there; a block's powers are made one after the other."""
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


@borrowing
def _square(values: Floats, out: Floats) -> None:
    for j in range(len(values)):
        out[j] = values[j] * values[j]


@borrowing
def _enough_powers(least: int, k: int, kappa: float, mass: float) -> int:
    """The least r for which the power sums beyond the r-th move ``log σ_K`` by less than the tolerance."""
    powers, moved = least, mass * kappa**least
    while powers < k and moved > TOLERANCE * (powers + 1) * (1 - kappa):
        powers += 1
        moved *= kappa
    return powers


@summing
def _product(left: Doubles, right: Doubles) -> float:
    """The sum over the first of the one times the last of the other, and so on."""
    total, count = 0.0, len(left)
    for i in range(count):
        total += left[i] * right[count - 1 - i]
    return total


@borrowing
def _newton(sums: Doubles, powers: int, k: int, out: Doubles) -> None:
    """σ_0 … σ_K from ``p_1 … p_r``; those beyond the r-th count as 0, and what rounding leaves below 0 is 0."""
    for i in range(2, powers + 1, 2):
        sums[i] = -sums[i]
    out[0] = 1
    for m in range(1, k + 1):
        terms = min(m, powers)
        out[m] = max(_product(sums[1 : terms + 1], out[m - terms : m]) / m, 0.0)


@borrowing
def _store_coefficients(polynomials: Doubles, k: int, powers: int, unit: float, out: Floats) -> None:
    """``(-1)^i (σ_{K-i} / σ_K - σ_{K-1-i} / σ_{K-1})`` for i = 1 … r, for values that are ``unit`` times as large."""
    factor = -unit
    for i in range(1, powers + 1):
        share = polynomials[k - i] / polynomials[k]
        if i < k:
            share -= polynomials[k - 1 - i] / polynomials[k - 1]
        out[i - 1] = share * factor
        factor *= -unit


@borrowing
def _largest_key(values: Floats) -> np.int32:
    """The largest value as a whole number in the order of the values: its search is vectorised, a float's is not."""
    bits = values.view(np.int32)
    largest = LOWEST_KEY
    for j in range(len(bits)):
        key = key_of(bits[j])
        largest = key if key > largest else largest
    return largest


@borrowing
def _largest_other(row: Floats, label: int) -> np.float32:
    """The largest score but the label's; masked classes count as the smallest finite scores."""
    key = max(_largest_key(row[:label]), _largest_key(row[label + 1 :]))
    return np.int32(key_of(key)).view(np.float32)


@borrowing
def _group_maxima(row: Floats, label: int, maxima: Floats) -> None:
    """The largest score of the classes j, j + G, … for each j < G, without the label."""
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


@borrowing
def _insert(value: np.float32, place: int, count: int, values: Floats, places: Whole) -> None:
    """Put a value among the first ``count``, descending; the last of them falls out."""
    j = count - 1
    while j > 0 and values[j - 1] < value:
        values[j] = values[j - 1]
        places[j] = places[j - 1]
        j -= 1
    values[j] = value
    places[j] = place


@borrowing
def _largest(row: Floats, label: int, k: int, maxima: Floats, values: Floats, places: Whole) -> None:
    """The K largest of the other classes, descending."""
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


@borrowing
def _take_out(
    row: Floats, label: int, k: int, scale: np.float32, room: Room, places: Whole
) -> tuple[int, float]:
    """Take out what needs it; its number, and W. What is left is in ``room.values``, in units of the K-th largest."""
    values, taken, groups = room.values, room.taken, len(room.maxima)
    _group_maxima(row, label, room.maxima)
    _largest(row, label, k, room.maxima, taken, places)
    powers_of_two(row, taken[k - 1], scale, ONE, values)
    powers_of_two(room.maxima, taken[k - 1], scale, ONE, room.group_values)
    values[label] = 0
    for i in range(k):
        values[places[i]] = 0
    weight = 1 + _two_sums(values)[0]
    threshold = weight / (2 * k)
    count = k
    for group in range(groups):
        if room.group_values[group] > threshold:
            for j in range(group, len(row), groups):
                if values[j] > threshold and count < len(taken):
                    taken[count] = row[j]
                    places[count] = j
                    values[j] = 0
                    count += 1
    return count, weight


@borrowing
def _power_of_two(exponent: float) -> float:
    """2 to a whole number up to 1023, and 0 below -1022."""
    biased = exponent + BIAS_OF_DOUBLES
    biased = biased if biased > 0 else 0.0
    return np.int64(np.float64(biased + ROUNDER_OF_DOUBLES).view(np.int64) << FRACTION_OF_DOUBLES).view(
        np.float64
    )


@borrowing
def _ratios(mantissa: float, exponent: float, inverse: Doubles, exponents: Doubles, out: Doubles) -> None:
    """``e_j / e_m`` for the first m."""
    for m in range(len(out)):
        out[m] = mantissa * inverse[m] * _power_of_two(exponent - exponents[m])


@contracting
def _grow(before: Doubles, ratios: Doubles, after: Doubles) -> None:
    """Ê with one value more."""
    after[0] = 1
    for m in range(len(ratios)):
        after[m + 1] = before[m + 1] + ratios[m] * before[m]


@borrowing
def _recursion(count: int, k: int, scale: float, room: Room) -> None:
    """``d_jm`` and Ê before and after each of the values taken out, and ``Π_{m < l <= K} e_K / e_l`` for m = 0 … K."""
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
def _totals(tops: Doubles, room: Room, k: int) -> None:
    """The polynomials of all classes in units of e_K."""
    for m in range(k + 1):
        room.start[m] = tops[m] * room.weights[m]
    for q in range(k + 1):
        room.polynomials[q] = _product(room.start[: q + 1], room.rest[: q + 1])


@summing
def _step_back(start: Doubles, ratios: Doubles, before: Doubles) -> float:
    """One step of the adjoint recursion: the value's share."""
    share = 0.0
    for m in range(len(ratios)):
        flow = start[m + 1] * ratios[m]
        start[m] += flow
        share += flow * before[m]
    return share


@borrowing
def _entries(count: int, k: int, room: Room, out: Floats) -> None:
    """``π^(K-1) - π^(K)`` of the values taken out."""
    last, before = room.polynomials[k], room.polynomials[k - 1]
    for m in range(k + 1):
        start = -room.rest[k - m] / last
        if m < k:
            start += room.rest[k - 1 - m] / before
        room.start[m] = start * room.weights[m]
    for j in range(count - 1, -1, -1):
        out[j] = _step_back(room.start, room.ratios[j, :k], room.tables[j])


@borrowing
def _comparable_row(
    mass: float, second: float, k: int, room: Room, slope: bool, kept: Floats
) -> tuple[float, int]:
    """``log σ_K - log σ_{K-1}`` in units of the largest value, and r; meanwhile the unit is ``max(p_1 / K, 1)``."""
    kappa = k / (mass - k + 1)
    powers = 1 if k == 1 else _enough_powers(2, k, kappa, second * kappa)
    sums, polynomials = room.sums, room.polynomials
    sums[1], sums[2] = mass, second
    _power_sums(room.values, room.power, powers, sums)
    unit = 1 / max(mass / k, 1.0)
    factor = unit
    for i in range(1, powers + 1):
        sums[i] *= factor
        factor *= unit
    _newton(sums, powers, k, polynomials)
    if slope:
        _store_coefficients(polynomials, k, powers, unit, kept[HEADER:])
    return math.log(polynomials[k] / (polynomials[k - 1] * unit)), powers


@borrowing
def _split_row(
    row: Floats, label: int, k: int, scale: float, room: Room, slope: bool, kept: Floats, places: Whole
) -> tuple[float, int, int]:
    """``log σ_K - log σ_{K-1}`` in units of the K-th largest value, r, and the number of values taken out."""
    count, weight = _take_out(row, label, k, np.float32(scale * LOG2E), room, places)
    mass, second = _two_sums(room.values)
    bound = np.int32(_largest_key(room.values)).view(np.float32)
    powers = 0
    if mass * k > TOLERANCE / 10 * weight:
        largest = float(bound)
        kappa = min(k * largest / weight, 0.5)
        moved = min(mass / largest, second / largest**2) * kappa
        powers = _enough_powers(1, k, kappa, moved)
    room.sums[1], room.sums[2] = mass, second
    _power_sums(room.values, room.power, powers, room.sums)
    _newton(room.sums, powers, k, room.rest)
    _recursion(count, k, scale, room)
    _totals(room.tables[count], room, k)
    if slope:
        _store_coefficients(room.polynomials, k, powers, 1.0, kept[HEADER:])
        _entries(count, k, room, kept[HEADER + k + len(room.taken) :])
    return math.log(room.polynomials[k] / room.polynomials[k - 1]), powers, count


@borrowing
def _argument(
    row: Floats, label: int, k: int, scale: float, room: Room, slope: bool, kept: Floats, numbers: Whole
) -> float:
    """``log σ_K - log σ_{K-1}`` less the label's exponent; NaN for rows with NaN or +inf."""
    reference = _largest_other(row, label)
    powers_of_two(row, reference, np.float32(scale * LOG2E), ONE, room.values)
    room.values[label] = 0
    mass, second = _two_sums(room.values)
    if not (reference < INFINITE and row[label] < INFINITE and mass < INFINITE):
        return np.nan
    if k == 1 or mass >= 3 * k:
        ratio, numbers[2] = _comparable_row(mass, second, k, room, slope, kept)
    else:
        ratio, numbers[2], numbers[3] = _split_row(
            row, label, k, scale, room, slope, kept, numbers[HEADER + k :]
        )
        reference = room.taken[k - 1]
    kept[1] = reference
    return ratio + (np.float64(reference) - np.float64(row[label])) * scale


@borrowing
def groups_of(k: int) -> int:
    """G."""
    return LANES * (1 + 2 * k // LANES)


def room_for(classes: int, k: int) -> tuple[Floats, Doubles]:
    """Memory for one thread, which ``_room`` divides."""
    most, groups = most_taken(classes, k), groups_of(k)
    floats = classes + SUMMED + 2 * groups + most
    doubles = (2 * most + 1) * (k + 1) + 2 * most + 5 * (k + 3)
    return np.empty(floats, np.float32), np.empty(doubles, np.float64)


def room_behind(k: int) -> Floats:
    """Memory for one thread on the way back."""
    return np.empty(SUMMED + k + 4, np.float32)


@borrowing
def _room(floats: Floats, doubles: Doubles, classes: int, k: int) -> Room:
    most, groups = most_taken(classes, k), groups_of(k)
    short = floats[classes:]
    square = doubles[2 * most :]
    rows = square[(2 * most + 1) * (k + 1) :]
    return Room(
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


@borrowing
def smooth_forward(
    scores: Floats,
    labels: NDArray[np.int64],
    margins: Doubles,
    ignored: int,
    k: int,
    tau: float,
    slope: bool,
    losses: Floats,
    kept: Floats,
    whole: Whole,
    floats: Floats,
    doubles: Doubles,
    first: int,
    last: int,
) -> None:
    """Losses of the rows from first to last, and with ``slope`` what the gradient needs.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        margins: ``(N,)``, or ``(1,)`` for all rows.
        ignored: The label that costs nothing.
        k: K.
        tau: τ.
        slope: Whether a gradient is wanted.
        losses: ``(N,)``; +inf for a target that is masked.
        kept: ``(N, HEADER + K + 2 M)``: sigmoid, reference, r and number of values taken out as whole numbers, r
            coefficients of a polynomial, and places (as whole numbers) and slopes of the values taken out.
        whole: The same memory as whole numbers.
        floats: Memory from ``room_for``.
        doubles: The same.
        first: The first row.
        last: The row after the last.
    """
    scale = 1 / (k * tau)
    room = _room(floats, doubles, scores.shape[1], k)
    for i in range(first, last):
        losses[i] = kept[i, 0] = 0
        whole[i, 2] = whole[i, 3] = 0
        label = labels[i]
        if label == ignored:
            continue
        if scores[i, label] == -INFINITE:
            losses[i] = INFINITE
            continue
        x = _argument(scores[i], label, k, scale, room, slope, kept[i], whole[i])
        x += margins[min(i, len(margins) - 1)] / tau
        small = math.exp(-abs(x))
        losses[i] = tau * (max(x, 0.0) + math.log1p(small)) if not math.isnan(x) else np.nan
        kept[i, 0] = (1.0 if x >= 0 else small) / (1 + small)


@contracting
def _first_terms(values: Floats, c: Floats, at: int, out: Floats) -> None:
    """Horner's first four steps."""
    c1, c2, c3, c4 = c[at], c[at + 1], c[at + 2], c[at + 3]
    for j in range(len(values)):
        out[j] = (c1 + values[j] * (c2 + values[j] * (c3 + values[j] * c4))) * values[j]


@contracting
def _next_terms(values: Floats, c: Floats, at: int, out: Floats) -> None:
    """Horner's next four steps."""
    c1, c2, c3, c4 = c[at], c[at + 1], c[at + 2], c[at + 3]
    for j in range(len(values)):
        out[j] = (c1 + values[j] * (c2 + values[j] * (c3 + values[j] * (c4 + out[j])))) * values[j]


@borrowing
def _polynomial(
    row: Floats,
    reference: np.float32,
    scale: np.float32,
    coefficients: Floats,
    powers: int,
    room: Floats,
    out: Floats,
) -> None:
    """``Σ_i c_i e^i`` for i = 1 … r, the coefficients being followed by enough zeros."""
    for start in range(0, len(row), len(room)):
        stop = min(start + len(room), len(row))
        values, part = room[: stop - start], out[start:stop]
        powers_of_two(row[start:stop], reference, scale, ONE, values)
        at = (powers - 1) // 4 * 4
        _first_terms(values, coefficients, at, part)
        while at > 0:
            at -= 4
            _next_terms(values, coefficients, at, part)


@borrowing
def smooth_backward(
    scores: Floats,
    labels: NDArray[np.int64],
    gradients: Floats,
    kept: Floats,
    whole: Whole,
    k: int,
    tau: float,
    by_scores: Floats,
    by_margins: Floats,
    floats: Floats,
    first: int,
    last: int,
) -> None:
    """The gradients of the rows from first to last with respect to scores and margins, given those to the losses.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        gradients: ``(N,)``, or ``(1,)`` for all rows.
        kept: What the forward pass kept.
        whole: The same memory as whole numbers.
        k: K.
        tau: τ.
        by_scores: ``(N, L)``, written.
        by_margins: ``(N,)``, written.
        floats: Memory from ``room_behind``.
        first: The first row.
        last: The row after the last.
    """
    scale = np.float32(LOG2E / (k * tau))
    room, coefficients = floats[:SUMMED], floats[SUMMED:]
    places = HEADER + k
    slopes = places + most_taken(scores.shape[1], k)
    for i in range(first, last):
        # What is ignored has no gradient, whatever it is multiplied with.
        by_margins[i] = kept[i, 0] * gradients[min(i, len(gradients) - 1)] if kept[i, 0] != 0 else 0
        factor = by_margins[i] / np.float32(-k)
        powers = whole[i, 2] if factor != 0 else 0
        if powers > 0:
            for j in range(powers):
                coefficients[j] = kept[i, HEADER + j] * factor
            coefficients[powers : powers + 3] = 0
            _polynomial(scores[i], kept[i, 1], scale, coefficients, powers, room, by_scores[i])
        else:
            by_scores[i] = np.nan if math.isnan(factor) else 0
        if factor != 0:
            for j in range(whole[i, 3]):
                by_scores[i, whole[i, places + j]] = kept[i, slopes + j] * factor
            by_scores[i, labels[i]] = factor
