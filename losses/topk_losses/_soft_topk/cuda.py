"""The soft top-K by a threshold on a GPU."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import triton
from topk_losses._core.backends import lazily
from topk_losses._soft_topk.plain import PlainSoftTopK
from topk_losses._soft_topk.shapes import CODES

__all__ = ["TritonSoftTopK", "refusal"]

KERNELS = lazily("topk_losses._soft_topk.cuda_kernels")
KEPT = 7  # numbers kept per row
SCORES_PER_THREAD = 32  # the search for the threshold computes more than it waits


class Kept(NamedTuple):
    """What the gradient needs, besides the scores."""

    numbers: Tensor
    """What the kernel keeps per row, ``(N, KEPT)``."""


def refusal(
    scores: Tensor, labels: Tensor, k: int, shape: str, by_log: bool, asked: bool = False
) -> str | None:
    """Why the kernels do not take these rows ``(N, L)`` and labels ``(N, 1)``."""
    return triton.refusal(scores, labels, asked) or triton.failure(
        TritonSoftTopK(k, 1.0, shape, by_log), "soft_topk_loss", scores
    )


class TritonSoftTopK(PlainSoftTopK):
    """The soft top-K losses in two kernels for all shapes."""

    keeps = Kept
    passes_nan: ClassVar[bool] = True

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Any]:  # noqa: ARG002
        """The losses, and what the gradient needs."""
        scores = triton.with_rows(scores)
        rows, classes = scores.shape
        losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
        kept = torch.empty(rows, KEPT, dtype=torch.float32, device=scores.device)
        triton.launch(
            KERNELS().soft_forward,
            scores,
            scores,
            labels.contiguous(),
            losses,
            kept,
            scores.stride(0),
            classes,
            self.k,
            *triton.halves(1 / self.tau),
            *self._form.bracket(self.k, classes),
            SHAPE=CODES[self.shape],
            LOG=self.by_log,
            **_shared_out(classes),
        )
        return losses, Kept(kept)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor]:
        """The gradient with respect to the scores; they are read once more."""
        scores = triton.with_rows(scores)
        classes = scores.shape[1]
        out = torch.empty_like(scores, memory_format=torch.contiguous_format)
        triton.launch(
            KERNELS().soft_backward,
            scores,
            scores,
            labels.contiguous(),
            gradient,
            kept.numbers,
            out,
            scores.stride(0),
            gradient.stride(0),
            classes,
            1 / self.tau,
            SHAPE=CODES[self.shape],
            **_shared_out(classes),
        )
        return (out,)


def _shared_out(classes: int) -> dict[str, int]:
    """The size of a row, and the warps that share it."""
    block = triton.block_of(classes)
    return {"block": block, "warps": triton.warps_of(block, SCORES_PER_THREAD)}
