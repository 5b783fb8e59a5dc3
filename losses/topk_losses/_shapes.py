"""The one mechanism that every loss shares: layout, hard and soft targets, weights, reductions, precision.

A loss is written as a *kernel*, a function of scores ``(M, L)`` and labels ``(M, C)`` that returns the losses
``(M, C)`` of each row for each of its C labels. Hard targets ask for C = 1. Soft targets are the expectation
over a label drawn from them, ``Σ_c t_c loss(s, c)``, and ask for all the L labels.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from topk_losses._checks import check_labels, check_per_class, check_reduction, check_scores

__all__ = [
    "Kernel",
    "Reduction",
    "class_last",
    "computing",
    "full_precision",
    "log_softmax",
    "per_label",
    "reduce_loss",
    "softmax",
]

FEW_CLASSES = 16  # float32 values in the widest register
MANY_ROWS = 128  # below, turning the rows around costs what it gains

Kernel: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Reduction: TypeAlias = Literal["mean", "sum", "none"]


def computing(scores: Tensor) -> Tensor:
    """The scores in the precision of the computation: float64 stays, everything narrower becomes float32."""
    return scores if scores.dtype == torch.float64 else scores.to(torch.float32)


def full_precision(scores: Tensor) -> AbstractContextManager[object]:
    """A context without autocast, whose matrix products would fall back to half precision."""
    device = scores.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def per_label(values: float | Tensor, labels: Tensor, scores: Tensor) -> float | Tensor:
    """The value of each label: a number as it is, a tensor ``(L,)`` looked up, in the scores' precision."""
    return values.to(scores.dtype)[labels] if isinstance(values, Tensor) else values


def class_last(tensor: Tensor) -> Tensor:
    """``(N, L, ...)`` as rows ``(M, L)``."""
    return tensor if tensor.ndim == 2 else tensor.movedim(1, -1).reshape(-1, tensor.shape[1])


def log_softmax(rows: Tensor) -> Tensor:
    """``log softmax(s)`` of rows ``(M, L)``."""
    return rows.t().contiguous().log_softmax(0).t() if _few_classes(rows) else rows.log_softmax(1)


def softmax(rows: Tensor) -> Tensor:
    """``softmax(s)`` of rows ``(M, L)``."""
    return rows.t().contiguous().softmax(0).t() if _few_classes(rows) else rows.softmax(1)


def _few_classes(rows: Tensor) -> bool:
    """Whether turning the rows pays: few classes fill no vector register, many samples do, 3 to 6 times as fast."""
    return rows.device.type == "cpu" and rows.shape[1] < FEW_CLASSES and rows.shape[0] >= MANY_ROWS


def _masked_targets_cost_infinity(losses: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """A target whose own score is -inf costs +inf, whatever its loss makes of the other classes."""
    return losses.masked_fill(rows.detach().gather(1, labels) == -torch.inf, torch.inf)


def reduce_loss(
    kernel: Kernel,
    scores: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    soft: bool = True,
) -> Tensor:
    """Apply a kernel to scores and targets as torch's cross-entropy would.

    Args:
        kernel: the loss, see the module's own words.
        scores: ``(N, L)`` or ``(N, L, ...)``.
        target: labels ``(N, ...)``, or probabilities of the scores' shape where ``soft`` allows them.
        weight: one factor per class, ``(L,)``. The mean divides by the sum of the labels' weights; with soft
            targets, whose terms it multiplies, by the number of samples, as torch does.
        ignore_index: labels that count for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        soft: whether the loss takes soft targets.

    Returns:
        A scalar, or for ``"none"`` a tensor ``(N, ...)``; float64 for float64 scores, else float32.

    Raises:
        ValueError: for wrong shapes, dtypes, reductions and labels out of range.
    """
    check_reduction(reduction)
    check_scores(scores)
    classes = scores.shape[1]
    if weight is not None:
        check_per_class("weight", weight, classes)
    rows = computing(class_last(scores))
    shape = scores.shape[:1] + scores.shape[2:]
    with full_precision(scores):
        if target.is_floating_point():
            _check_soft(scores, target, ignore_index, soft)
            losses = _expected_loss(kernel, rows, computing(class_last(target)).to(rows.dtype), weight)
            return losses.mean() if reduction == "mean" else _finish(losses, shape, reduction)
        complete = check_labels(target, scores.shape, classes, ignore_index)
        ignored = None if complete else target.reshape(-1, 1) == ignore_index
        losses, shares = _label_loss(kernel, rows, target.reshape(-1, 1), weight, ignored)
        return losses.sum() / shares if reduction == "mean" else _finish(losses, shape, reduction)


def _check_soft(scores: Tensor, target: Tensor, ignore_index: int, soft: bool) -> None:
    if not soft:
        raise ValueError(
            f"target must hold int64 labels, since this loss has no soft targets; got {target.dtype}"
        )
    if target.shape != scores.shape:
        raise ValueError(
            f"target must have the shape {tuple(scores.shape)} of the scores when it holds probabilities, "
            f"got {tuple(target.shape)}"
        )
    if ignore_index >= 0:
        raise ValueError(f"ignore_index must be negative (unused) with soft targets, got {ignore_index}")


def _expected_loss(kernel: Kernel, rows: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    labels = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
    losses = _masked_targets_cost_infinity(kernel(rows, labels), rows, labels)
    # A masked class that has no share in the target costs nothing: 0 · inf is 0 here.
    losses = losses.masked_fill((target == 0) & losses.isinf(), 0)
    return (losses * target if weight is None else losses * target * weight.to(rows.dtype)).sum(1)


def _label_loss(
    kernel: Kernel, rows: Tensor, labels: Tensor, weight: Tensor | None, ignored: Tensor | None
) -> tuple[Tensor, Tensor | int]:
    """The weighted losses ``(M,)`` and the sum of their weights; ``ignored`` is None if no label is."""
    if ignored is not None:
        labels = labels.masked_fill(ignored, 0)
    losses = _masked_targets_cost_infinity(kernel(rows, labels), rows, labels)
    if ignored is not None:
        losses = losses.masked_fill(ignored, 0)
    if weight is None:
        return losses.squeeze(1), len(rows) if ignored is None else (~ignored).sum()
    shares = weight.to(rows.dtype)[labels]
    if ignored is not None:
        shares = shares.masked_fill(ignored, 0)
    return (losses * shares).squeeze(1), shares.sum()


def _finish(losses: Tensor, shape: torch.Size, reduction: str) -> Tensor:
    return losses.sum() if reduction == "sum" else losses.reshape(shape)
