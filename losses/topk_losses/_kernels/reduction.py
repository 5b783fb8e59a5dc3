"""Weights, ignored labels and reductions around the rows' losses, with as few launches as possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from topk_losses._checks import check_labels, check_per_class, check_reduction
from topk_losses._fused import Margin
from topk_losses._shapes import class_last, computing

__all__ = ["Losses", "reduce_rows"]

Losses: TypeAlias = Callable[[Tensor, Tensor, Margin], Tensor]


def reduce_rows(
    losses_of: Losses,
    scores: Tensor,
    target: Tensor,
    margin: Margin,
    *,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """As :func:`~topk_losses._shapes.reduce_loss` for labels, for losses that leave out what is ignored themselves.

    Args:
        losses_of: scores ``(M, L)``, labels ``(M,)`` and a margin, or one per row, to losses ``(M,)``: 0 for
            ignored labels, +inf for a target whose score is -inf. Labels out of range, which nobody can
            complain of without waiting for the device, cost NaN.
        scores: ``(N, L)`` or ``(N, L, ...)`` in any precision.
        target: labels ``(N, ...)``.
        margin: a number, or one per class ``(L,)``.
        weight: one factor per class, ``(L,)``.
        ignore_index: labels that count for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """
    check_reduction(reduction)
    classes = scores.shape[1]
    if weight is not None:
        check_per_class("weight", weight, classes)
    complete = check_labels(target, scores.shape, classes, ignore_index)
    labels = target.reshape(-1)
    known = labels.clamp(0, classes - 1) if weight is not None or isinstance(margin, Tensor) else labels
    precision = computing(scores[:0]).dtype
    if isinstance(margin, Tensor):
        margin = margin.to(precision)[known]
    losses = losses_of(class_last(scores), labels, margin)
    if complete and weight is None and reduction == "mean":
        return losses.mean()
    counted = labels != ignore_index if weight is not None or reduction == "mean" else None
    shares = counted
    if weight is not None and counted is not None:
        shares = weight.to(precision)[known] * counted
        # Not 0 · inf: what is ignored costs nothing, whatever its weight.
        losses = torch.where(counted, losses * shares, losses)
    if reduction == "mean" and shares is not None:
        return losses.sum() / shares.sum()
    return losses.sum() if reduction == "sum" else losses.reshape(target.shape)
