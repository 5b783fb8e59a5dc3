"""The smooth top-K SVM in torch, including ignored labels and masked targets, which kernels also handle."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._core.shapes import computing
from topk_losses._smooth_svm.plain import PlainSmoothSVM

__all__ = ["complete_losses"]


def complete_losses(
    scores: Tensor, labels: Tensor, margin: float | Tensor, k: int, tau: float, ignore_index: int
) -> Tensor:
    """Losses ``(N,)``: 0 for ignored labels, +inf for targets whose score is -inf."""
    rows, ignored = computing(scores), labels == ignore_index
    labels = labels.masked_fill(ignored, 0)
    losses = PlainSmoothSVM(k, tau).plain(rows, labels, margin)
    masked = rows.detach().gather(1, labels).squeeze(1) == -torch.inf
    return losses.masked_fill(masked, torch.inf).masked_fill(ignored.squeeze(1), 0)
