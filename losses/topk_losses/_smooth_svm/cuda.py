"""The smooth top-K SVM on a GPU."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import triton
from topk_losses._core.backends import lazily
from topk_losses._smooth_svm.plain import CompleteSmoothSVM

__all__ = ["MOST_K", "TritonSmoothSVM", "refusal"]

KERNELS = lazily("topk_losses._smooth_svm.cuda_kernels")
MOST_K = 20  # the size of the compiled kernel grows with K²


class Kept(NamedTuple):
    """What the gradient needs, besides the scores."""

    numbers: Tensor
    """What the kernel keeps per row, ``(N, 3 + K + 2 M)``."""


def refusal(
    scores: Tensor, target: Tensor, k: int, margin: float | Tensor = 1.0, asked: bool = False
) -> str | None:
    """Why the kernels do not take this call."""
    if k > MOST_K:
        return f"k is above {MOST_K}"
    per_row = torch.float32 if isinstance(margin, Tensor) else None
    return triton.refusal(scores, target, asked) or triton.failure(
        TritonSmoothSVM(k, tau=1.0), "smooth_topk_svm", scores, per_row
    )


class TritonSmoothSVM(CompleteSmoothSVM):
    """The smooth top-K SVM with K and temperature τ, in two kernels.

    The kernels read scores of any precision directly from memory; the losses are float32.
    """

    keeps = Kept

    narrow: ClassVar[bool] = True

    def forward(
        self, scores: Tensor, labels: Tensor, margin: float | Tensor, *, with_gradient: bool
    ) -> tuple[Tensor, Any]:
        """The losses, and what the gradient needs."""
        scores = triton.with_rows(scores)
        rows, classes = scores.shape
        losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
        kept = torch.empty(rows, 3 + self.k + 2 * self._most, dtype=torch.float32, device=scores.device)
        triton.launch(
            KERNELS().smooth_forward,
            scores,
            scores,
            labels.contiguous(),
            margin.to(torch.float32).contiguous() if isinstance(margin, Tensor) else losses,
            losses,
            kept,
            scores.stride(0),
            classes,
            self.ignore_index,
            float(self.tau),
            *triton.halves(1 / (self.k * self.tau)),
            *triton.halves(1 / self.tau),
            *triton.halves(0.0 if isinstance(margin, Tensor) else margin),
            PER_ROW=isinstance(margin, Tensor),
            SLOPE=with_gradient,
            K=self.k,
            M=self._most,
            block=triton.block_of(classes),
        )
        return losses, Kept(kept)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor, Tensor]:
        """The gradient from what the forward pass kept; the scores are read once more."""
        scores = triton.with_rows(scores)
        rows, classes = scores.shape
        by_score = torch.empty_like(scores, memory_format=torch.contiguous_format)
        by_margin = torch.empty(rows, dtype=torch.float32, device=scores.device)
        triton.launch(
            KERNELS().smooth_backward,
            scores,
            scores,
            labels.contiguous(),
            gradient,
            kept.numbers,
            by_score,
            by_margin,
            scores.stride(0),
            gradient.stride(0),
            classes,
            1 / (self.k * self.tau),
            K=self.k,
            M=self._most,
            block=triton.block_of(classes),
        )
        return by_score, by_margin

    @property
    def _most(self) -> int:
        """M, the length of the list of values taken out: a power of two of at least 3K."""
        return 1 << (3 * self.k - 1).bit_length()
