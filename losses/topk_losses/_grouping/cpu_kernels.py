"""CPU kernels of top-K grouping and transition, given the K best classes: each reads a row once."""

from __future__ import annotations

import math

import numpy as np

from topk_losses._core.numba_kernels import (
    LOG2E,
    ONE,
    SUMMED,
    Floats,
    Integers,
    buffers_for,
    drop_subnormal,
    entry,
    inner,
    powers_of_two,
    sum_of,
)

__all__ = ["KEPT", "buffers_for", "grouping_backward", "grouping_forward"]


KEPT = 4  # numbers kept per row: the largest score, and factors for all classes, for the K best and for the label
SCALE = np.float32(LOG2E)
LEAST = -1e30  # replaces log q = -inf of a masked label: its gradient is 0 times this


@inner
def _largest_and_rest(row: Floats, places: Integers, buffers: Floats) -> tuple[float, float]:
    """The sums of ``exp(s - s_[1])`` over the K best classes and over the others."""
    powers_of_two(row, row[places[0]], SCALE, ONE, buffers)
    best, rest = 0.0, 0.0
    for j in range(len(places)):
        best += np.float64(buffers[places[j]])
        buffers[places[j]] = 0
    for start in range(0, len(buffers), SUMMED):
        rest += np.float64(sum_of(buffers[start : start + SUMMED]))
    return best, rest


@inner
def _numbers(
    inside: bool, best: float, rest: float, log_q: float, transition: bool, detach_weight: bool
) -> tuple[float, float, float, float]:
    """The loss, and A, A + B and C of ``plain.py``, without differences of nearly equal numbers."""
    if not inside:
        return -log_q, 1.0, 1.0, 1.0
    union, others = best / (best + rest), rest / (best + rest)
    log_union = -math.log1p(rest / best)
    if not transition:
        return -log_union, 1.0, -rest / best, 0.0
    loss = -union * log_union - (others * log_q if others > 0 else 0.0)
    if detach_weight:
        return loss, 1.0, 0.0, others
    extra = max(log_q, LEAST) - log_union - 1
    return loss, others - extra * union, others * (1 + extra), others


@entry
def grouping_forward(
    scores: Floats,
    labels: Integers,
    places: Integers,
    transition: bool,
    detach_weight: bool,
    losses: Floats,
    kept: Floats,
    buffers: Floats,
    first: int,
    last: int,
) -> None:
    """Write the losses of the rows from first to last, and what the gradient needs.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        places: The K best classes, descending, ``(N, K)``.
        transition: True for top-K transition, False for top-K grouping.
        detach_weight: Whether the gradient treats the transition's weight S as a constant.
        losses: ``(N,)``, written.
        kept: ``(N, KEPT)``, written.
        buffers: A buffer from ``buffers_for``.
        first: The first row.
        last: The row after the last.
    """
    for i in range(first, last):
        label, inside = labels[i], False
        for j in range(places.shape[1]):
            inside |= places[i, j] == label
        largest = scores[i, places[i, 0]]
        best, rest = _largest_and_rest(scores[i], places[i], buffers)
        total = best + rest
        log_q = np.float64(scores[i, label]) - np.float64(largest) - math.log(total)
        loss, all_classes, among_best, own = _numbers(inside, best, rest, log_q, transition, detach_weight)
        losses[i] = np.nan if math.isnan(total) else loss
        kept[i, 0] = largest
        kept[i, 1] = all_classes / total
        kept[i, 2] = among_best / total
        kept[i, 3] = own


@entry
def grouping_backward(
    scores: Floats,
    labels: Integers,
    places: Integers,
    kept: Floats,
    gradients: Floats,
    out: Floats,
    first: int,
    last: int,
) -> None:
    """Write the gradients with respect to the scores for the rows from first to last.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        places: ``(N, K)``.
        kept: What the forward pass kept.
        gradients: Gradients of the losses ``(N,)``.
        out: ``(N, L)``, written.
        first: The first row.
        last: The row after the last.
    """
    for i in range(first, last):
        gradient = gradients[i]
        powers_of_two(scores[i], kept[i, 0], SCALE, kept[i, 1] * gradient, out[i])
        multiple = np.float64(kept[i, 2] * gradient)
        for j in range(places.shape[1]):
            column = places[i, j]
            out[i, column] = multiple * math.exp(np.float64(scores[i, column]) - np.float64(kept[i, 0]))
        out[i, labels[i]] -= kept[i, 3] * gradient
        drop_subnormal(out[i])
