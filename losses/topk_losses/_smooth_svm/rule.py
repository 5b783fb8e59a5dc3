"""The smooth top-K SVM: the choice of the rule for a call, and the loss of scores and targets."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from topk_losses._core.autograd import Rule, losses_by
from topk_losses._core.backends import choose
from topk_losses._core.reduction import Reduction, reduce_loss
from topk_losses._core.shapes import per_label
from topk_losses._smooth_svm import cpu, cuda
from topk_losses._smooth_svm.plain import PlainSmoothSVM, in_log_space
from topk_losses._smooth_svm.power_sums import log_subsets
from topk_losses._smooth_svm.symmetric import LARGEST_EXPONENT

__all__ = ["smooth_svm"]


def smooth_svm(
    scores: Tensor, target: Tensor, k: int, tau: float, margin: float | Tensor, how: Reduction
) -> Tensor:
    """:func:`~topk_losses.functional.smooth_topk_svm` for arguments that have been checked."""
    rule = _rule(scores, target, k, tau, margin, how.ignore_index)
    in_logarithms = log_subsets(scores.shape[1] - 1, k) > LARGEST_EXPONENT

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        margins = per_label(margin, labels, rows)
        if in_logarithms:
            return in_log_space(rows, labels, margins, k, tau)
        margins = margins.squeeze(1) if isinstance(margins, Tensor) else margins
        return losses_by(rule, rows, labels, margins).unsqueeze(1)

    return reduce_loss(losses, scores, target, how, soft=False, complete=rule.complete)


def _rule(
    scores: Tensor, target: Tensor, k: int, tau: float, margin: float | Tensor, ignore_index: int
) -> Rule[Any]:
    backend = choose(
        "smooth_topk_svm",
        triton=lambda asked: cuda.refusal(scores, target, k, margin, asked),
        numba=lambda asked: cpu.refusal(scores, target, k, asked),
    )
    if backend == "triton":
        return cuda.TritonSmoothSVM(k, tau, ignore_index)
    if backend == "numba":
        return cpu.NumbaSmoothSVM(k, tau, ignore_index)
    return PlainSmoothSVM(k, tau)
