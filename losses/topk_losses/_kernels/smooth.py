"""The smooth top-K SVM on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from topk_losses._fused import Margin, fused_losses
from topk_losses._kernels.dispatch import block_of, halves, is_batched, launch, runs, takes
from topk_losses._kernels.reduction import reduce_rows
from topk_losses._shapes import computing
from topk_losses._smooth_svm import SmoothTopK

__all__ = ["MOST_K", "SmoothTopKKernel", "smooth_topk_svm_on_gpu", "takes_smooth"]

MOST_K = 20  # the kernel's code grows with K²


def takes_smooth(scores: Tensor, target: Tensor, k: int, margin: Margin = 1.0) -> bool:
    """Whether the kernels can have this call."""
    return k <= MOST_K and takes(scores, target) and runs(SmoothTopKKernel(k, tau=1.0), scores, margin)


def smooth_topk_svm_on_gpu(
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
    rule = SmoothTopKKernel(k, tau, ignore_index)

    def losses_of(rows: Tensor, labels: Tensor, margins: Margin) -> Tensor:
        return fused_losses(rule, rows, labels.unsqueeze(1), margins)

    return reduce_rows(
        losses_of, scores, target, margin, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


@dataclass(frozen=True)
class SmoothTopKKernel:
    """The rule of the smooth top-K SVM at K and temperature τ; what is ignored costs nothing.

    Scores come in any precision, as they are in memory; the losses are float32.
    """

    k: int
    tau: float
    ignore_index: int = -100

    def plain(self, scores: Tensor, labels: Tensor, margin: Margin) -> Tensor:
        """The losses in plain torch."""
        rows, ignored = computing(scores), labels == self.ignore_index
        labels = labels.masked_fill(ignored, 0)
        losses = SmoothTopK(self.k, self.tau).plain(rows, labels, margin)
        masked = rows.detach().gather(1, labels).squeeze(1) == -torch.inf
        return losses.masked_fill(masked, torch.inf).masked_fill(ignored.squeeze(1), 0)

    def forward(
        self, scores: Tensor, labels: Tensor, margin: Margin, with_gradient: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """The losses, and what the kernel keeps of each row, ``(N, 3 + K + 2 M)``."""
        scores = _with_rows(scores)
        rows, classes = scores.shape
        losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
        kept = torch.empty(rows, 3 + self.k + 2 * self._most, dtype=torch.float32, device=scores.device)
        launch(
            _kernels().smooth_forward,
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
            *halves(1 / (self.k * self.tau)),
            *halves(1 / self.tau),
            *halves(0.0 if isinstance(margin, Tensor) else margin),
            PER_ROW=isinstance(margin, Tensor),
            SLOPE=with_gradient,
            K=self.k,
            M=self._most,
            block=block_of(classes),
        )
        return losses, [kept]

    def backward(
        self, gradient: Tensor, scores: Tensor, labels: Tensor, saved: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The gradient from what the forward pass kept, and the scores once more."""
        if is_batched(gradient):
            ones = torch.ones(len(scores), dtype=torch.float32, device=scores.device)
            by_score, by_margin = self.backward(ones, scores, labels, saved)
            return gradient.unsqueeze(1) * by_score, gradient * by_margin
        scores = _with_rows(scores)
        rows, classes = scores.shape
        by_score = torch.empty_like(scores, memory_format=torch.contiguous_format)
        by_margin = torch.empty(rows, dtype=torch.float32, device=scores.device)
        launch(
            _kernels().smooth_backward,
            scores,
            scores,
            labels.contiguous(),
            gradient,
            *saved,
            by_score,
            by_margin,
            scores.stride(0),
            gradient.stride(0),
            classes,
            1 / (self.k * self.tau),
            K=self.k,
            M=self._most,
            block=block_of(classes),
        )
        return by_score, by_margin

    @property
    def name(self) -> str:
        """What the loss is called."""
        return "smooth_topk_svm"

    def rehearse(self, scores: Tensor, margin: Margin, with_gradient: bool) -> None:
        """Launch what a call with such scores and margins launches."""
        labels = torch.zeros(len(scores), 1, dtype=torch.int64, device=scores.device)
        losses, kept = self.forward(scores, labels, margin, with_gradient)
        if with_gradient:
            self.backward(losses.mean().expand(len(scores)), scores, labels, kept)

    @property
    def _most(self) -> int:
        """M: room for the values taken out."""
        return 1 << (3 * self.k - 1).bit_length()


def _with_rows(scores: Tensor) -> Tensor:
    """The scores with each row's entries next to each other."""
    return scores if scores.stride(1) == 1 else scores.contiguous()


def _kernels() -> Any:
    from topk_losses._kernels import smooth_triton  # noqa: PLC0415  # for CUDA tensors alone

    return smooth_triton
