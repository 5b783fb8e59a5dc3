"""The layout of scores as rows, the precision of the computation, softmax of rows, and rows with NaN or +inf.

For every loss and backend, the loss and the gradient of a row with NaN or +inf are NaN, as in torch's cross-entropy.
Half precision overflows to +inf, and a gradient scaler has to notice it.
"""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from topk_losses._core.checks import all_within

__all__ = [
    "class_last",
    "computing",
    "cross_entropies",
    "few_classes",
    "full_precision",
    "log_softmax",
    "log_sum_without",
    "per_label",
    "softmax",
    "with_nan",
    "with_nan_where_invalid",
]

FEW_CLASSES = 16  # float32 values in the widest vector register
MANY_ROWS = 128  # with fewer rows, transposing costs as much as it gains
AS_IT_IS = nullcontext()


def computing(scores: Tensor) -> Tensor:
    """The scores in the precision of the computation: float64 stays, everything narrower becomes float32."""
    return scores if scores.dtype in (torch.float32, torch.float64) else scores.to(torch.float32)


def full_precision(scores: Tensor) -> AbstractContextManager[object]:
    """A context without autocast, under which matrix products would be in half precision."""
    device = "cpu" if scores.is_cpu else scores.device.type  # its type takes as long as a small kernel
    if device != "meta" and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return AS_IT_IS


def per_label(values: float | Tensor, labels: Tensor, scores: Tensor) -> float | Tensor:
    """The value of each label, from one number for all or a tensor ``(L,)``, in the precision of the computation.

    An ignored label may be out of range; it gets the value of some class, since its loss is not used.
    """
    if not isinstance(values, Tensor):
        return values
    return values.to(computing(scores[:0]).dtype)[labels.clamp(0, len(values) - 1)]


def class_last(tensor: Tensor) -> Tensor:
    """``(N, L, ...)`` as rows ``(M, L)``."""
    return tensor if tensor.ndim == 2 else tensor.movedim(1, -1).reshape(-1, tensor.shape[1])


def log_softmax(rows: Tensor) -> Tensor:
    """``log softmax(s)`` of rows ``(M, L)``."""
    return rows.t().contiguous().log_softmax(0).t() if few_classes(rows) else rows.log_softmax(1)


def cross_entropies(rows: Tensor, labels: Tensor) -> Tensor:
    """``-log softmax(s)_y`` of rows ``(M, L)`` for labels ``(M, C)``."""
    if labels.shape[1] == 1 and not few_classes(rows):
        return cross_entropy(rows, labels.squeeze(1), reduction="none").unsqueeze(1)
    return -log_softmax(rows).gather(1, labels)


def softmax(rows: Tensor) -> Tensor:
    """``softmax(s)`` of rows ``(M, L)``."""
    return rows.t().contiguous().softmax(0).t() if few_classes(rows) else rows.softmax(1)


def few_classes(rows: Tensor) -> bool:
    """Whether to transpose: few classes do not fill a vector register, many rows do, which is 3 to 6 times as fast."""
    return (
        rows.shape[1] < FEW_CLASSES
        and rows.is_cpu
        and not torch.compiler.is_compiling()  # a graph is for any number of rows
        and rows.shape[0] >= MANY_ROWS
    )


def with_nan(values: Tensor, invalid: Tensor) -> Tensor:
    """The values ``(M, C)``, with NaN as value and gradient in the invalid rows ``(M, 1)``.

    Call it before a hinge: the gradient of the hinge itself is 0 or 1 and would not pass NaN on.
    """
    return values * torch.where(invalid, torch.nan, 1.0).to(values.dtype)


def with_nan_where_invalid(values: Tensor, top: Tensor) -> Tensor:
    """:func:`with_nan` for rows that contain NaN or +inf; ``top`` ``(M, k)`` starts with the largest score of each row.

    NaN is sorted as the largest score, so the first column shows both.
    """
    largest = top.detach()[:, :1]
    if all_within(largest, -math.inf, sys.float_info.max):
        return values
    return with_nan(values, ~(largest < torch.inf))


def log_sum_without(rows: Tensor, indices: Tensor) -> Tensor:
    """``log Σ exp(s_j)`` over all classes except those in ``indices``, ``(M, 1)``.

    If no class is left, it is a very low finite number, because logsumexp has no gradient at -inf.
    """
    return rows.scatter(1, indices, -torch.finfo(rows.dtype).max / 4).logsumexp(1, keepdim=True)
