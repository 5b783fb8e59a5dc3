"""The smooth top-K SVM on a CPU where Numba is installed."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import lazily
from topk_losses._smooth_svm.plain import CompleteSmoothSVM
from topk_losses._smooth_svm.symmetric import LARGEST_EXPONENT, log_subsets

__all__ = ["NumbaSmoothSVM", "refusal"]

KERNELS = lazily("topk_losses._smooth_svm.cpu_kernels")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_K = 128  # tables of K times 3K numbers fit into the cache
FEW_CLASSES, MANY_SAMPLES = 16, 4096  # here plain torch is faster, because it works on all rows at once


class Kept(NamedTuple):
    """What the gradient needs, besides the scores."""

    numbers: Tensor
    """What the kernel keeps per row, ``(N, HEADER + K + 2 M)``."""


def refusal(scores: Tensor, target: Tensor, k: int, asked: bool = False) -> str | None:
    """Why the kernels do not take this call; float64 scores go to plain torch, which keeps their precision."""
    if k > MOST_K:
        return f"k is above {MOST_K}"
    if target.is_floating_point():
        return "the targets are soft"
    if scores.shape[1] < FEW_CLASSES and scores.shape[0] >= MANY_SAMPLES and not asked:
        return "torch is faster for so few classes and so many samples"
    if log_subsets(scores.shape[1] - 1, k) > LARGEST_EXPONENT:
        return "there are more K-subsets than a float64 can count"
    return numba.refusal(scores, DTYPES)


class NumbaSmoothSVM(CompleteSmoothSVM):
    """The smooth top-K SVM with K and temperature τ, in two float32 kernels."""

    keeps = Kept

    def forward(
        self, scores: Tensor, labels: Tensor, margin: float | Tensor, *, with_gradient: bool
    ) -> tuple[Tensor, Any]:
        """The losses, and what the gradient needs."""
        kernels, (rows, classes) = KERNELS(), scores.shape
        losses = numba.empty("float32", rows)
        kept = numba.empty("float32", rows, kernels.kept_per_row(classes, self.k))
        arrays = numba.array(scores), numba.array(labels), numba.numbers(margin)
        how = self.ignore_index, self.k, float(self.tau), with_gradient

        def part(first: int, last: int) -> None:
            buffers = kernels.buffers_for(classes, self.k)
            kernels.smooth_forward(*arrays, *how, losses, kept, *buffers, first, last)

        numba.over_rows(part, scores)
        return torch.from_numpy(losses), Kept(torch.from_numpy(kept))

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor, Tensor]:
        """The gradient from what the forward pass kept; the scores are read once more."""
        kernels, by_score = KERNELS(), torch.empty_like(scores, memory_format=torch.contiguous_format)
        arrays = [numba.array(tensor) for tensor in (scores, labels, gradient, kept.numbers)]
        by_margin = numba.empty("float32", len(scores))
        how = self.k, float(self.tau), by_score.numpy(), by_margin

        def part(first: int, last: int) -> None:
            kernels.smooth_backward(*arrays, *how, kernels.backward_buffer_for(self.k), first, last)

        numba.over_rows(part, scores)
        return by_score, torch.from_numpy(by_margin)
