r"""CPU kernels of the smooth top-K SVM: a loop over rows, each read once forward and once backward.

The method is that of ``cuda_kernels.py``. Let e = exp(s / (K τ)) in units of the largest. A row is *comparable* if its
mass ``Σ e`` is at least 3K; then power sums give the polynomials (``symmetric.py`` has the proof and the bound on the
number of sums, here chosen per row). In other rows the K largest values are taken out, and further values above
W / (2K), in units of the K-th largest, where W is the mass of all values but the K - 1 largest in these units. Then κ
is at most 1/2 for the remaining values, and at most 2K further values are taken out.

To find the largest values, the classes are divided into a few groups, whose maxima are computed first. Values above the
K-th largest maximum are in groups whose maximum is above it, so only a few groups are searched.

The values taken out go through the positive recursion of ``leading.py`` in float64. A factor ``e_j / e_m`` is the
product of two mantissas and a power of two, whatever the range of the scores. The adjoint recursion, which gives the
inclusion probabilities, is linear in its start, so it runs only once, for ``π^(K-1) - π^(K)``.

Computations over classes are float32, in blocks whose sums are added in float64; those per row are float64.
"""

from __future__ import annotations

import math

import numpy as np

from topk_losses._core.numba_kernels import (
    LOG2E,
    ONE,
    SUMMED,
    Doubles,
    Floats,
    Integers,
    Keys,
    contracting,
    drop_subnormal,
    entry,
    inner,
    powers_of_two,
)
from topk_losses._smooth_svm.leading_kernels import (
    backward_buffer_for,
    buffers_for,
    entries,
    kept_per_row,
    largest_key,
    largest_other,
    most_taken,
    parts_of,
    recursion,
    take_out,
    totals,
)
from topk_losses._smooth_svm.power_sums_kernels import (
    HEADER,
    INFINITE,
    TOLERANCE,
    Buffers,
    enough_powers,
    newton,
    power_sums,
    store_coefficients,
    two_sums,
)

__all__ = [
    "backward_buffer_for",
    "buffers_for",
    "kept_per_row",
    "smooth_backward",
    "smooth_forward",
]


@inner
def _comparable_row(
    mass: float, second: float, k: int, buffers: Buffers, slope: bool, kept: Floats
) -> tuple[float, int]:
    """``log σ_K - log σ_{K-1}`` in units of the largest value, and r; computed in the unit ``max(p_1 / K, 1)``."""
    kappa = k / (mass - k + 1)
    powers = 1 if k == 1 else enough_powers(2, k, kappa, second * kappa)
    sums, polynomials = buffers.sums, buffers.polynomials
    sums[1], sums[2] = mass, second
    power_sums(buffers.values, buffers.power, powers, sums)
    unit = 1 / max(mass / k, 1.0)
    factor = unit
    for i in range(1, powers + 1):
        sums[i] *= factor
        factor *= unit
    newton(sums, powers, k, polynomials)
    if slope:
        store_coefficients(polynomials, k, powers, unit, kept[HEADER:])
    return math.log(polynomials[k] / (polynomials[k - 1] * unit)), powers


@inner
def _split_row(
    row: Floats, label: int, k: int, scale: float, buffers: Buffers, slope: bool, kept: Floats, places: Keys
) -> tuple[float, int, int]:
    """``log σ_K - log σ_{K-1}`` in units of the K-th largest value, r, and the number of values taken out."""
    count, weight = take_out(row, label, k, np.float32(scale * LOG2E), buffers, places)
    mass, second = two_sums(buffers.values)
    bound = np.int32(largest_key(buffers.values)).view(np.float32)
    powers = 0
    if mass * k > TOLERANCE / 10 * weight:
        largest = float(bound)
        kappa = min(k * largest / weight, 0.5)
        moved = min(mass / largest, second / largest**2) * kappa
        powers = enough_powers(1, k, kappa, moved)
    buffers.sums[1], buffers.sums[2] = mass, second
    power_sums(buffers.values, buffers.power, powers, buffers.sums)
    newton(buffers.sums, powers, k, buffers.rest)
    recursion(count, k, scale, buffers)
    totals(buffers.tables[count], buffers, k)
    if slope:
        store_coefficients(buffers.polynomials, k, powers, 1.0, kept[HEADER:])
        entries(count, k, buffers, kept[HEADER + k + len(buffers.taken) :])
    return math.log(buffers.polynomials[k] / buffers.polynomials[k - 1]), powers, count


@inner
def _argument(
    row: Floats, label: int, k: int, scale: float, buffers: Buffers, slope: bool, kept: Floats, numbers: Keys
) -> float:
    """``log σ_K - log σ_{K-1}`` minus the label's exponent; NaN for rows with NaN or +inf."""
    reference = largest_other(row, label)
    powers_of_two(row, reference, np.float32(scale * LOG2E), ONE, buffers.values)
    buffers.values[label] = 0
    mass, second = two_sums(buffers.values)
    if not (reference < INFINITE and row[label] < INFINITE and mass < INFINITE):
        return np.nan
    if k == 1 or mass >= 3 * k:
        ratio, numbers[2] = _comparable_row(mass, second, k, buffers, slope, kept)
    else:
        ratio, numbers[2], numbers[3] = _split_row(
            row, label, k, scale, buffers, slope, kept, numbers[HEADER + k :]
        )
        reference = buffers.taken[k - 1]
    kept[1] = reference
    return ratio + (np.float64(reference) - np.float64(row[label])) * scale


@entry
def smooth_forward(
    scores: Floats,
    labels: Integers,
    margins: Doubles,
    ignored: int,
    k: int,
    tau: float,
    slope: bool,
    losses: Floats,
    kept: Floats,
    floats: Floats,
    doubles: Doubles,
    first: int,
    last: int,
) -> None:
    """Write the losses of the rows from first to last, and with ``slope`` what the gradient needs.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        margins: ``(N,)``, or ``(1,)`` for all rows.
        ignored: The label whose loss is 0.
        k: K.
        tau: τ.
        slope: Whether a gradient is needed.
        losses: ``(N,)``, written; +inf for a masked target.
        kept: ``(N, HEADER + K + 2 M)``, written: sigmoid, reference, r and the number of values taken out as integers,
            r coefficients of a polynomial, and the classes (as integers) and slopes of the values taken out.
        floats: A buffer from ``buffers_for``.
        doubles: The same.
        first: The first row.
        last: The row after the last.
    """
    scale = 1 / (k * tau)
    whole = kept.view(np.int32)
    buffers = parts_of(floats, doubles, scores.shape[1], k)
    for i in range(first, last):
        losses[i] = kept[i, 0] = 0
        whole[i, 2] = whole[i, 3] = 0
        label = labels[i]
        if label == ignored:
            continue
        if scores[i, label] == -INFINITE:
            losses[i] = INFINITE
            continue
        x = _argument(scores[i], label, k, scale, buffers, slope, kept[i], whole[i])
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


@inner
def _polynomial(
    row: Floats,
    reference: np.float32,
    scale: np.float32,
    coefficients: Floats,
    powers: int,
    buffers: Floats,
    out: Floats,
) -> None:
    """Write ``Σ_i c_i e^i`` for i = 1 … r; at least three zeros must follow the coefficients."""
    for start in range(0, len(row), len(buffers)):
        stop = min(start + len(buffers), len(row))
        values, part = buffers[: stop - start], out[start:stop]
        powers_of_two(row[start:stop], reference, scale, ONE, values)
        at = (powers - 1) // 4 * 4
        _first_terms(values, coefficients, at, part)
        while at > 0:
            at -= 4
            _next_terms(values, coefficients, at, part)


@entry
def smooth_backward(
    scores: Floats,
    labels: Integers,
    gradients: Floats,
    kept: Floats,
    k: int,
    tau: float,
    by_scores: Floats,
    by_margins: Floats,
    floats: Floats,
    first: int,
    last: int,
) -> None:
    """Write the gradients with respect to scores and margins for the rows from first to last.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        gradients: Gradients of the losses ``(N,)``, or ``(1,)`` for all rows.
        kept: What the forward pass kept.
        k: K.
        tau: τ.
        by_scores: ``(N, L)``, written.
        by_margins: ``(N,)``, written.
        floats: A buffer from ``backward_buffer_for``.
        first: The first row.
        last: The row after the last.
    """
    scale = np.float32(LOG2E / (k * tau))
    whole = kept.view(np.int32)
    buffers, coefficients = floats[:SUMMED], floats[SUMMED:]
    places = HEADER + k
    slopes = places + most_taken(scores.shape[1], k)
    for i in range(first, last):
        # An ignored row has the gradient 0, even if the incoming gradient is inf or NaN.
        by_margins[i] = kept[i, 0] * gradients[min(i, len(gradients) - 1)] if kept[i, 0] != 0 else 0
        factor = by_margins[i] / np.float32(-k)
        powers = whole[i, 2] if factor != 0 else 0
        if powers > 0:
            for j in range(powers):
                coefficients[j] = kept[i, HEADER + j] * factor
            coefficients[powers : powers + 3] = 0
            _polynomial(scores[i], kept[i, 1], scale, coefficients, powers, buffers, by_scores[i])
        else:
            by_scores[i] = np.nan if math.isnan(factor) else 0
        if factor != 0:
            for j in range(whole[i, 3]):
                by_scores[i, whole[i, places + j]] = kept[i, slopes + j] * factor
            by_scores[i, labels[i]] = factor
            drop_subnormal(by_scores[i])
