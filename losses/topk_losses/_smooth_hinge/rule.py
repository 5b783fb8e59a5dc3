"""The smooth convex top-K hinge: the choice of the rule for a call, and the losses of rows."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.autograd import losses_by
from topk_losses._core.backends import choose
from topk_losses._smooth_hinge import cpu
from topk_losses._smooth_hinge.plain import PlainSmoothHinge

__all__ = ["smooth_hinge_losses"]


def smooth_hinge_losses(rows: Tensor, labels: Tensor, k: int, gamma: float, margin: float | Tensor) -> Tensor:
    """The losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``; one margin, or one per label ``(M, C)``."""
    plain = PlainSmoothHinge(k, gamma)
    if labels.shape[1] != 1:
        return plain.of_labels(rows, labels, margin)
    backend = choose("smooth_topk_hinge", numba=lambda asked: cpu.refusal(rows, k, asked))
    rule = cpu.NumbaSmoothHinge(k, gamma) if backend == "numba" else plain
    margin = margin.squeeze(1) if isinstance(margin, Tensor) else margin
    return losses_by(rule, rows, labels, margin).unsqueeze(1)
