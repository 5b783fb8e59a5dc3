"""CPU kernels of the soft top-K by a threshold: Newton's method for each row, given its K + 1 best classes.

``exponential_kernels.py``, ``gaussian_kernels.py`` and ``bounded_kernels.py`` find the thresholds of the shapes.
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
    buffers_for,
    drop_subnormal,
    entry,
    inner,
    powers_of_two,
    scale_by,
    summing,
)
from topk_losses._soft_topk.bounded_kernels import bounded_densities, bounded_threshold
from topk_losses._soft_topk.exponential_kernels import exponential_threshold
from topk_losses._soft_topk.gaussian_kernels import (
    gaussian_densities,
    gaussian_of_label,
    gaussian_threshold,
    scratch_for,
)
from topk_losses._soft_topk.shapes import CODES

__all__ = ["KEPT", "buffers_for", "doubles_for", "scratch_for", "soft_backward", "soft_forward"]


LOGISTIC, LAPLACE, GAUSSIAN = CODES["logistic"], CODES["laplace"], CODES["gaussian"]
CLIP, POWER, MIDPOINT = CODES["clip"], CODES["power"], CODES["midpoint"]
KEPT = 2  # numbers kept per row: the threshold, and the factor of the gradient
HALF = np.float32(0.5)
ZERO = np.float32(0)


def doubles_for(k: int) -> Doubles:
    """A buffer for one thread."""
    return np.empty(k, np.float64)


@inner
def _prepared(row: Floats, places: Integers, tau: float, out: Floats, near: Doubles) -> float:
    """Write the exponentials of the others, and those of the K best relative to the K-th; return the gap."""
    k = len(places) - 1
    reference, kth = row[places[k]], np.float64(row[places[k - 1]])
    powers_of_two(row, reference, np.float32(LOG2E / tau), ONE, out)
    for j in range(k):
        out[places[j]] = 0
        near[j] = math.exp((kth - np.float64(row[places[j]])) / tau)
    return (kth - np.float64(reference)) / tau


@inner
def _of_label(x: float, shape: int, by_log: bool) -> tuple[float, float]:
    """The loss of a label at distance x from the threshold, and minus its derivative with respect to x."""
    if shape in (CLIP, POWER):
        inside = min(max(x, 0.0), 1.0)
        density = 1.0 if 0 < x < 1 else 0.0
        return (1 - inside, density) if shape == CLIP else (1 - inside**3, 3 * inside**2 * density)
    if shape == GAUSSIAN:
        return gaussian_of_label(x, by_log)
    small = math.exp(-abs(x))
    if shape == LAPLACE:
        tail = small / 2
        if by_log:
            return (-math.log1p(-tail), tail / (1 - tail)) if x > 0 else (math.log(2.0) - x, 1.0)
        return (tail if x > 0 else 1 - tail), tail
    miss = small / (1 + small) if x > 0 else 1 / (1 + small)
    if by_log:
        return math.log1p(small) + max(-x, 0.0), miss
    return miss, small / (1 + small) ** 2


@entry
def soft_forward(
    scores: Floats,
    labels: Integers,
    places: Integers,
    tau: float,
    shape: int,
    by_log: bool,
    below: float,
    beyond: float,
    quantile: float,
    losses: Floats,
    kept: Doubles,
    buffers: Floats,
    near: Doubles,
    scratch: Floats,
    first: int,
    last: int,
) -> None:
    """Write the losses of the rows from first to last, and what the gradient needs.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        places: The K + 1 best classes, descending, ``(N, K + 1)``.
        tau: τ.
        shape: The code of the shape, see ``CODES``.
        by_log: True for ``-log p_y``, False for ``1 - p_y``.
        below: How far the threshold may lie below the (K+1)-th score, in units of τ.
        beyond: How far it may lie above the K-th score, in units of τ.
        quantile: The standard normal quantile at K / L.
        losses: ``(N,)``, written.
        kept: ``(N, KEPT)``, written.
        buffers: A buffer, ``(L,)``.
        near: A buffer, ``(K,)``.
        scratch: A buffer from :func:`scratch_for`.
        first: The first row.
        last: The row after the last.
    """
    k = places.shape[1] - 1
    for i in range(first, last):
        row, ranked = scores[i], places[i]
        reference = np.float64(row[ranked[k]])
        kept[i, 0], kept[i, 1], losses[i] = 0.0, 0.0, 0.0
        if not row[ranked[0]] < np.inf:
            kept[i, 1] = np.nan
            losses[i] = np.nan
            continue
        if reference == -np.inf:  # at most K classes are unmasked: all of them are in the top K
            continue
        if shape in (CLIP, POWER):
            kept[i, 0] = bounded_threshold(row, ranked, tau, shape == POWER, buffers)
        elif shape == GAUSSIAN:
            kept[i, 0] = gaussian_threshold(row, ranked, tau, below, beyond, quantile, buffers, scratch)
        elif shape == MIDPOINT:
            kept[i, 0] = (np.float64(row[ranked[k - 1]]) - reference) / tau / 2
        else:
            gap = _prepared(row, ranked, tau, buffers, near)
            kept[i, 0] = exponential_threshold(buffers, near, gap, shape, below, beyond)
        x = (np.float64(row[labels[i]]) - reference) / tau - kept[i, 0]
        loss, slope = _of_label(x, shape, by_log)
        losses[i] = loss
        kept[i, 1] = slope / tau


@summing
def _part_densities(out: Floats, inverse: np.float32, logistic: bool) -> float:
    """Replace exponentials by densities divided by ``exp(-b)``, and return their sum."""
    total = ZERO
    for j in range(len(out)):
        v = out[j] * inverse
        q = ONE / (ONE + v) if logistic else ONE / (v if v > ONE else ONE)
        out[j] *= q * q
        total += out[j]
    return np.float64(total)


@inner
def _shares(
    row: Floats, places: Integers, tau: float, b: float, shape: int, factor: float, out: Floats
) -> None:
    """Write ``factor · F'_j / Σ F'`` for the logistic and the Laplace shape."""
    k = len(places) - 1
    reference, kth = row[places[k]], np.float64(row[places[k - 1]])
    gap = (kth - np.float64(reference)) / tau
    powers_of_two(row, reference, np.float32(LOG2E / tau), ONE, out)
    for j in range(k):
        out[places[j]] = 0
    inverse, power, largest = math.exp(-b), math.exp(b - gap), max(-b, b - gap)
    behind, ahead, total = math.exp(-b - largest), math.exp(b - gap - largest), 0.0
    for start in range(0, len(out), SUMMED):
        total += _part_densities(out[start : start + SUMMED], np.float32(inverse), shape == LOGISTIC) * behind
    best = 0.0
    for j in range(k):
        best += _density((kth - np.float64(row[places[j]])) / tau, power, shape) * ahead
    total += best
    scale_by(out, np.float32(factor * behind / total))
    for j in range(k):
        density = _density((kth - np.float64(row[places[j]])) / tau, power, shape)
        out[places[j]] = factor * density * ahead / total


@inner
def _density(x: float, power: float, shape: int) -> float:
    """The density of one of the K best, divided by ``exp(b - gap)``; x <= 0 is the K-th score minus its score."""
    u = math.exp(x)
    q = 1 / (1 + u * power) if shape == LOGISTIC else 1 / max(u * power, 1.0)
    return u * q * q


@entry
def soft_backward(
    scores: Floats,
    labels: Integers,
    places: Integers,
    kept: Doubles,
    gradients: Floats,
    tau: float,
    shape: int,
    out: Floats,
    scratch: Floats,
    first: int,
    last: int,
) -> None:
    """Write the gradients with respect to the scores for the rows from first to last.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        places: ``(N, K + 1)``.
        kept: What the forward pass kept.
        gradients: Gradients of the losses ``(N,)``.
        tau: τ.
        shape: The code of the shape, see ``CODES``.
        out: ``(N, L)``, written.
        scratch: A buffer from :func:`scratch_for`.
        first: The first row.
        last: The row after the last.
    """
    k = places.shape[1] - 1
    for i in range(first, last):
        b, factor = kept[i, 0], kept[i, 1] * gradients[i]
        if factor == 0 or math.isnan(factor):
            out[i] = factor
            continue
        if shape in (CLIP, POWER):
            bounded_densities(scores[i], places[i], tau, b, shape == POWER, factor, out[i])
        elif shape == GAUSSIAN:
            gaussian_densities(scores[i], places[i], tau, b, factor, out[i], scratch)
        elif shape == MIDPOINT:
            out[i] = 0
            out[i, places[i, k - 1]] = factor / 2
            out[i, places[i, k]] = factor / 2
        else:
            _shares(scores[i], places[i], tau, b, shape, factor, out[i])
        out[i, labels[i]] -= factor
        drop_subnormal(out[i])
