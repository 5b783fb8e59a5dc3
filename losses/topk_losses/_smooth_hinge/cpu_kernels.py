"""CPU kernels of the smooth convex top-K hinge: Newton's method for each row, given its K + 1 best classes."""

from __future__ import annotations

import math

import numpy as np

from topk_losses._core.numba import compiled
from topk_losses._core.numba_kernels import (
    LOWEST,
    SUMMED,
    Doubles,
    Floats,
    Integers,
    buffers_for,
    contracting,
    entry,
    inner,
)

__all__ = ["KEPT", "buffers_for", "hinge_backward", "hinge_forward"]


KEPT = 3  # numbers kept per row: a centre near t, t minus the centre, and the sum of x
MOST_STEPS = 200  # about ten are needed; bisection alone would take as many as t has bits
INFINITE = np.float32(np.inf)
ZERO = np.float32(0)

summing = compiled("reassoc", counting=False, inner=True)


@inner
def _less(row: Floats, centre: np.float32, out: Floats) -> None:
    for j in range(len(row)):
        out[j] = row[j] - centre


@summing
def _part_between(values: Floats, t: np.float32, cap: np.float32) -> tuple[np.float32, np.int32]:
    total, count = ZERO, np.int32(0)
    for j in range(len(values)):
        gap = values[j] - t
        gap = ZERO if gap < 0 else gap
        free = np.int32(gap > 0)
        count += free if gap < cap else np.int32(0)
        total += cap if gap > cap else gap
    return total, count


@inner
def _between(values: Floats, t: float, cap: float) -> tuple[float, int]:
    """``Σ clip(v - t, 0, cap)``, and the number of terms strictly between the bounds."""
    total, count = 0.0, 0
    for start in range(0, len(values), SUMMED):
        one, number = _part_between(values[start : start + SUMMED], np.float32(t), np.float32(cap))
        total += np.float64(one)
        count += int(number)
    return total, count


@inner
def _newton(values: Floats, start: float, low: float, high: float, cap: float, gamma: float) -> float:
    """The t in ``[low, high]`` at which ``Σ clip(v - t, 0, cap) = γ``."""
    t = start
    for _ in range(MOST_STEPS):
        total, free = _between(values, t, cap)
        excess = total - gamma
        if abs(excess) <= 4e-7 * gamma:  # exact up to rounding, and so is the last step
            return t + excess / max(free, 1)
        if excess > 0:
            low = t
        else:
            high = t
        step = t + excess / free if free > 0 else low
        before, t = t, step if low < step < high else (low + high) / 2
        if t == before:
            break
    return t


@inner
def _less_margin(own: float, margin: float, centre: np.float32) -> float:
    """The label's score relative to the centre, less the margin, which large scores would swallow."""
    return (own - np.float64(centre)) - margin


@inner
def _threshold(
    row: Floats, label: int, own: float, margin: float, best: Floats, gamma: float, values: Floats
) -> tuple[np.float32, float]:
    """A centre near t, and t minus the centre; ``values`` receives the distances of the scores from the centre.

    t is first found relative to the K-th largest score, then relative to the result, near which distances are exact.
    """
    centre, cap = best[len(best) - 1], gamma / len(best)
    _less(row, centre, values)
    values[label] = LOWEST
    t = _newton(values, -cap, -cap, float(best[0] - centre), cap, gamma)
    least = _less_margin(own, margin, centre)
    nearer = np.float32(np.float64(centre) + max(t, least))
    _less(row, nearer, values)
    values[label] = LOWEST
    if t <= least:
        return nearer, _less_margin(own, margin, nearer)
    low = np.float64(centre) - np.float64(nearer) - 2 * cap
    t = _newton(values, 0.0, low, float(best[0] - nearer), cap, gamma)
    return nearer, max(t, _less_margin(own, margin, nearer))


@summing
def _part_sums(
    values: Floats, t: np.float32, inverse: np.float32, most: np.float32
) -> tuple[float, float, float]:
    """The sums of x, of x², and of x times the values."""
    one, two, three = ZERO, ZERO, ZERO
    for j in range(len(values)):
        x = (values[j] - t) * inverse
        x = ZERO if x < 0 else x
        x = most if x > most else x
        one += x
        two += x * x
        three += x * (ZERO if x == 0 else values[j])
    return np.float64(one), np.float64(two), np.float64(three)


@inner
def _row(
    row: Floats,
    label: int,
    places: Integers,
    own: float,
    margin: float,
    k: int,
    gamma: float,
    best: Floats,
    values: Floats,
    kept: Floats,
) -> float:
    """The loss of a row; ``own`` is the label's score."""
    count = 0
    for j in range(k + 1):
        if places[j] != label and count < k:
            best[count] = row[places[j]]
            count += 1
    centre = best[k - 1]
    kept[2] = 0
    if not (best[0] < INFINITE and row[label] < INFINITE and not math.isnan(own - margin)):
        kept[2] = np.nan
        return np.nan
    if centre == -INFINITE:
        return 0.0
    centre, t = _threshold(row, label, own, margin, best, gamma, values)
    total, squares, products = 0.0, 0.0, 0.0
    for start in range(0, len(values), SUMMED):
        part = values[start : start + SUMMED]
        one, two, three = _part_sums(part, np.float32(t), np.float32(1 / gamma), np.float32(1 / k))
        total += one
        squares += two
        products += three
    kept[0], kept[1], kept[2] = centre, t, total
    return max(products - _less_margin(own, margin, centre) * total - gamma / 2 * squares, 0.0)


@entry
def hinge_forward(
    scores: Floats,
    labels: Integers,
    places: Integers,
    margins: Doubles,
    gamma: float,
    losses: Floats,
    kept: Floats,
    best: Floats,
    values: Floats,
    first: int,
    last: int,
) -> None:
    """Write the losses of the rows from first to last, and what the gradient needs.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        places: The K + 1 best classes, descending, ``(N, K + 1)``.
        margins: ``(N,)``, or ``(1,)`` for all rows.
        gamma: γ.
        losses: ``(N,)``, written.
        kept: ``(N, KEPT)``, written.
        best: A buffer, ``(K,)``.
        values: A buffer, ``(L,)``.
        first: The first row.
        last: The row after the last.
    """
    k = places.shape[1] - 1
    for i in range(first, last):
        own = float(scores[i, labels[i]])
        own = 0.0 if own == -INFINITE else own  # any value: the loss of a masked target is set to +inf later
        margin = margins[min(i, len(margins) - 1)]
        losses[i] = _row(scores[i], labels[i], places[i], own, margin, k, gamma, best, values, kept[i])


@contracting
def _clipped(
    row: Floats,
    centre: np.float32,
    t: np.float32,
    inverse: np.float32,
    most: np.float32,
    factor: np.float32,
    out: Floats,
) -> None:
    """Write ``factor · x``."""
    for j in range(len(row)):
        x = ((row[j] - centre) - t) * inverse
        x = ZERO if x < 0 else x
        x = most if x > most else x
        out[j] = x * factor


@entry
def hinge_backward(
    scores: Floats,
    labels: Integers,
    gradients: Floats,
    kept: Floats,
    k: int,
    gamma: float,
    by_scores: Floats,
    by_margins: Floats,
    first: int,
    last: int,
) -> None:
    """Write the gradients with respect to scores and margins for the rows from first to last.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        gradients: Gradients of the losses ``(N,)``.
        kept: What the forward pass kept.
        k: K.
        gamma: γ.
        by_scores: ``(N, L)``, written.
        by_margins: ``(N,)``, written.
        first: The first row.
        last: The row after the last.
    """
    inverse, most = np.float32(1 / gamma), np.float32(1 / k)
    for i in range(first, last):
        by_margins[i] = gradients[i] * kept[i, 2]
        if kept[i, 2] > 0:
            _clipped(scores[i], kept[i, 0], kept[i, 1], inverse, most, gradients[i], by_scores[i])
        else:
            by_scores[i] = kept[i, 2]
        by_scores[i, labels[i]] = -by_margins[i]
