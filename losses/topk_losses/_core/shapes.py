"""The layout of scores as rows, the precision of the computation, and softmax of rows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

__all__ = [
    "class_last",
    "computing",
    "cross_entropies",
    "few_classes",
    "full_precision",
    "log_softmax",
    "per_label",
    "softmax",
]

FEW_CLASSES = 16  # float32 values in the widest vector register
MANY_ROWS = 128  # with fewer rows, transposing costs as much as it gains


def computing(scores: Tensor) -> Tensor:
    """The scores in the precision of the computation: float64 stays, everything narrower becomes float32."""
    return scores if scores.dtype in (torch.float32, torch.float64) else scores.to(torch.float32)


def full_precision(scores: Tensor) -> AbstractContextManager[object]:
    """A context without autocast, under which matrix products would be in half precision."""
    device = "cpu" if scores.is_cpu else scores.device.type  # its type takes as long as a small kernel
    if device != "meta" and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


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
        rows.is_cpu
        and rows.shape[1] < FEW_CLASSES
        and not torch.compiler.is_compiling()  # a graph is for any number of rows
        and rows.shape[0] >= MANY_ROWS
    )
