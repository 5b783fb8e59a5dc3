"""The noised top-K hinge on a GPU, with Triton kernels that generate the noise where it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from topk_losses._core import triton
from topk_losses._noised.drawn import DrawnHinge, KeptDraws

__all__ = ["MOST_DRAWS", "MOST_K", "TritonNoisedHinge", "refusal"]

MOST_K = 31  # the k largest of a draw stay in registers
MOST_DRAWS = 128  # the draws of a row stay in registers
DRAWS_AT_ONCE = 16
CHUNK = 64  # classes that noise is drawn for at once; larger chunks leave registers for fewer programs
LEAST_CAPACITY = 256  # up to this many candidates, or a sixteenth of the classes, are listed in memory
GROUPS = 256


def refusal(
    scores: Tensor,
    target: Tensor,
    k: int,
    samples: int,
    margin: float | Tensor = 1.0,
    asked: bool = False,
) -> str | None:
    """Why the kernels do not take this call."""
    if samples > MOST_DRAWS or k > MOST_K:
        return f"samples are above {MOST_DRAWS}, or k is above {MOST_K}"
    return triton.refusal(scores, target, asked) or triton.failure(
        TritonNoisedHinge(k, 1.0, samples), scores, margin
    )


@dataclass(frozen=True)
class TritonNoisedHinge(DrawnHinge):
    """The noised top-K hinge with K, ε and B, in two kernels.

    Attributes:
        least_capacity: Candidates are listed in memory if there are at most this many, or at most a sixteenth of the
            classes. Otherwise noise is drawn for all classes.
    """

    k: int
    epsilon: float
    samples: int
    ignore_index: int = -100
    least_capacity: int = LEAST_CAPACITY
    narrow: ClassVar[bool] = True

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        margin: float | Tensor,
        seeds: Tensor,
        *,
        with_gradient: bool,  # noqa: ARG002
    ) -> tuple[Tensor, KeptDraws]:
        """The losses, and the draws; each seed is used for an equal share of the rows."""
        scores = triton.with_rows(scores)
        rows, labels = scores.shape[0], labels.contiguous()
        losses, active = (torch.empty(rows, dtype=torch.float32, device=scores.device) for _ in range(2))
        places = torch.empty(rows, self.samples, dtype=torch.int32, device=scores.device)
        share = rows // len(seeds)
        for i in range(len(seeds)):
            part = slice(i * share, (i + 1) * share)
            own = margin[part] if isinstance(margin, Tensor) else margin
            self._draw(scores[part], labels[part], own, seeds[i:], losses[part], active[part], places[part])
        return losses, KeptDraws(active, places)

    def _draw(
        self,
        scores: Tensor,
        labels: Tensor,
        margin: float | Tensor,
        seeds: Tensor,
        losses: Tensor,
        active: Tensor,
        places: Tensor,
    ) -> None:
        """Write the results of the rows that use the first of the seeds."""
        rows, classes = scores.shape
        block = triton.block_of(classes)
        capacity = min(block, max(self.least_capacity, block // 16))
        triton.launch(
            _kernels().noised_forward,
            scores,
            scores,
            labels,
            margin.contiguous() if isinstance(margin, Tensor) else losses,
            seeds,
            losses,
            active,
            places,
            torch.empty(rows, capacity, dtype=torch.int32, device=scores.device),
            scores.stride(0),
            classes,
            self.ignore_index,
            float(self.epsilon),
            0.0 if isinstance(margin, Tensor) else float(margin),
            self.samples,
            PER_ROW=isinstance(margin, Tensor),
            K=self.k,
            SLOTS=1 << self.k.bit_length(),
            DRAWS=min(self._lanes, DRAWS_AT_ONCE),
            CAPACITY=capacity,
            GROUPS=min(GROUPS, block),
            CHUNK=CHUNK,
            block=block,
        )

    def backward(
        self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: KeptDraws
    ) -> tuple[Tensor | None, ...]:
        """The gradient with respect to the scores and the margins."""
        classes = scores.shape[1]
        out = torch.empty_like(scores, memory_format=torch.contiguous_format)
        triton.launch(
            _kernels().noised_backward,
            out,
            labels.contiguous(),
            gradient,
            kept.active,
            kept.places,
            out,
            gradient.stride(0),
            classes,
            self.samples,
            DRAWS=self._lanes,
            block=min(triton.block_of(classes), 4096),
        )
        return out, gradient * kept.active, None

    @property
    def name(self) -> str:
        """The name of the loss."""
        return "noised_topk_hinge"

    def rehearse(self, scores: Tensor, margin: float | Tensor, with_gradient: bool) -> None:
        """Launch the kernels of a call with such scores and margins."""
        labels = torch.zeros(len(scores), 1, dtype=torch.int64, device=scores.device)
        seeds = torch.zeros_like(labels).reshape(-1)
        losses, kept = self.forward(scores, labels, margin, seeds, with_gradient=with_gradient)
        if with_gradient:
            self.backward(losses.mean().expand(len(scores)), scores, labels, kept)

    @property
    def _lanes(self) -> int:
        """The smallest power of two that is at least B and at least 4, the number of Gaussians made together."""
        return max(4, 1 << (self.samples - 1).bit_length())


def _kernels() -> Any:
    from topk_losses._noised import cuda_kernels  # noqa: PLC0415  # imports Triton

    return cuda_kernels
