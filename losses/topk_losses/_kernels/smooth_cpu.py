"""The smooth top-K SVM on a CPU where Numba is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from topk_losses._fused import Margin, fused_losses
from topk_losses._kernels.compiled import in_parts, takes_on_cpu
from topk_losses._kernels.dispatch import is_batched
from topk_losses._kernels.reduction import reduce_rows
from topk_losses._kernels.smooth import SmoothTopKKernel
from topk_losses._power_sums import log_subsets
from topk_losses.operators.symmetric import LARGEST_EXPONENT

__all__ = ["MOST_K", "SmoothTopKRows", "smooth_topk_svm_on_cpu", "takes_smooth_on_cpu"]

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_K = 128  # tables of K times 3K numbers stay in the cache
SCORES_PER_THREAD = 2**18
FEW_CLASSES, MANY_SAMPLES = 16, 4096  # plain torch works on all rows at once, which then is faster


def takes_smooth_on_cpu(scores: Tensor, target: Tensor, k: int) -> bool:
    """Whether the kernels can have this call; float64 scores are for plain torch, which keeps their precision."""
    return (
        scores.dtype in DTYPES
        and k <= MOST_K
        and (scores.shape[1] >= FEW_CLASSES or scores.shape[0] < MANY_SAMPLES)
        and not target.is_floating_point()
        and takes_on_cpu(scores if scores.dtype == torch.float32 else scores[:0].to(torch.float32))
        and log_subsets(scores.shape[1] - 1, k) <= LARGEST_EXPONENT
    )


def smooth_topk_svm_on_cpu(
    scores: Tensor,
    target: Tensor,
    k: int,
    tau: float,
    margin: Margin,
    *,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """:func:`~topk_losses.functional.smooth_topk_svm` with its rows computed by the kernels."""
    rule = SmoothTopKRows(k, tau, ignore_index)

    def losses_of(rows: Tensor, labels: Tensor, margins: Margin) -> Tensor:
        return fused_losses(rule, rows.to(torch.float32), labels.unsqueeze(1), margins)

    return reduce_rows(
        losses_of, scores, target, margin, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


@dataclass(frozen=True)
class SmoothTopKRows:
    """The rule of the smooth top-K SVM at K and temperature τ for float32 scores; what is ignored costs nothing."""

    k: int
    tau: float
    ignore_index: int = -100

    def plain(self, scores: Tensor, labels: Tensor, margin: Margin) -> Tensor:
        """The losses in plain torch."""
        return SmoothTopKKernel(self.k, self.tau, self.ignore_index).plain(scores, labels, margin)

    def forward(
        self, scores: Tensor, labels: Tensor, margin: Margin, with_gradient: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """The losses, and what the kernel keeps of each row."""
        kernels, (rows, classes) = _kernels(), scores.shape
        losses = scores.new_empty(rows)
        most = kernels.most_taken(classes, self.k)
        kept = scores.new_empty(rows, kernels.HEADER + self.k + 2 * most)
        margins = torch.as_tensor(margin, dtype=torch.float64).reshape(-1)
        arrays = _array(scores), _array(labels).reshape(-1), _array(margins)
        numbers = (self.ignore_index, self.k, float(self.tau), with_gradient)
        outputs = _array(losses), _array(kept), _array(kept.view(torch.int32))

        def part(first: int, last: int) -> None:
            room = kernels.room_for(classes, self.k)
            kernels.smooth_forward(*arrays, *numbers, *outputs, *room, first, last)

        in_parts(part, rows, _rows_per_thread(classes))
        return losses, [kept]

    def backward(
        self, gradient: Tensor, scores: Tensor, labels: Tensor, saved: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The gradient from what the forward pass kept, and the scores once more."""
        if is_batched(gradient) or torch._C._functorch.is_functorch_wrapped_tensor(gradient):
            by_score, by_margin = self.backward(scores.new_ones(len(scores)), scores, labels, saved)
            return gradient.unsqueeze(1) * by_score, gradient * by_margin
        kernels, (rows, classes) = _kernels(), scores.shape
        by_score = torch.empty_like(scores, memory_format=torch.contiguous_format)
        by_margin = scores.new_empty(rows)
        kept = _array(saved[0]), _array(saved[0].view(torch.int32))
        arrays = _array(scores), _array(labels).reshape(-1), _array(gradient), *kept
        outputs = _array(by_score), _array(by_margin)

        def part(first: int, last: int) -> None:
            room = kernels.room_behind(self.k)
            kernels.smooth_backward(*arrays, self.k, float(self.tau), *outputs, room, first, last)

        in_parts(part, rows, _rows_per_thread(classes))
        return by_score, by_margin


def _array(tensor: Tensor) -> Any:
    """The tensor's memory as NumPy's, put in order first if it is not."""
    return tensor.detach().resolve_neg().contiguous().numpy()


def _rows_per_thread(classes: int) -> int:
    return max(1, SCORES_PER_THREAD // classes)


def _kernels() -> Any:
    from topk_losses._kernels import smooth_numba  # noqa: PLC0415  # compiled when a call needs it

    return smooth_numba
