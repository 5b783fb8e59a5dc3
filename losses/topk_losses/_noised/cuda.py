"""The noised top-K hinge on a GPU, with Triton kernels that generate the noise where it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import triton
from topk_losses._core.backends import lazily
from topk_losses._noised.plain import DrawnHinge, KeptDraws

__all__ = ["MOST_DRAWS", "MOST_K", "TritonNoisedHinge", "refusal"]

KERNELS = lazily("topk_losses._noised.cuda_kernels")
MOST_K = 31  # the k largest of a draw stay in registers
MOST_DRAWS = 128  # the draws of a row stay in registers
CHUNK = 128  # classes that a warp draws noise for at once
LEAST_CAPACITY = 256  # up to this many candidates, or a sixteenth of the classes, are listed in memory
GROUPS = 256


def refusal(
    scores: Tensor, target: Tensor, k: int, samples: int, margin: float | Tensor = 1.0, asked: bool = False
) -> str | None:
    """Why the kernels do not take this call."""
    if samples > MOST_DRAWS or k > MOST_K:
        return f"samples are above {MOST_DRAWS}, or k is above {MOST_K}"
    per_row = torch.float32 if isinstance(margin, Tensor) else None
    return triton.refusal(scores, target, asked) or triton.failure(
        TritonNoisedHinge(k, 1.0, samples), "noised_topk_hinge", scores, per_row, torch.int64
    )


class Drawn(NamedTuple):
    """The draws of rows."""

    numbers: Tensor
    """How many classes noise was drawn for; -1 minus this in rows with NaN or +inf ``(N,)``."""
    centres: Tensor
    """The largest scores, or the (K+1)-th largest where the largest is far above ``(N,)``."""
    largest: Tensor
    """The (K+1)-th largest noisy score of each draw, minus the row's centre ``(N, B)``."""
    places: Tensor
    """Its class, -1 for none ``(N, B)``."""


@dataclass(frozen=True)
class TritonNoisedHinge(DrawnHinge):
    """The noised top-K hinge with K, ε and B, in four kernels.

    Attributes:
        least_capacity: Candidates are listed in memory if there are at most this many, or at most a sixteenth of the
            classes. Otherwise noise is drawn for all classes.
    """

    least_capacity: int = LEAST_CAPACITY
    narrow: ClassVar[bool] = True
    passes_nan: ClassVar[bool] = True

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
        scores, labels = triton.with_rows(scores), labels.contiguous()
        rows = scores.shape[0]
        losses, active = (torch.empty(rows, dtype=torch.float32, device=scores.device) for _ in range(2))
        drawn = self._draw(scores, seeds)
        triton.launch(
            KERNELS().noised_losses,
            scores,
            scores,
            labels,
            margin.contiguous() if isinstance(margin, Tensor) else losses,
            drawn.numbers,
            drawn.centres,
            drawn.largest,
            losses,
            active,
            scores.stride(0),
            scores.shape[1],
            self.ignore_index,
            0.0 if isinstance(margin, Tensor) else float(margin),
            self.samples,
            PER_ROW=isinstance(margin, Tensor),
            block=self._lanes,
            warps=1,
        )
        return losses, KeptDraws(active, drawn.places)

    def _candidates(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The classes that can count, their numbers and the centres."""
        rows, classes = scores.shape
        block = triton.block_of(classes)
        capacity = min(block, max(self.least_capacity, block // 16))
        kept = torch.empty(rows, capacity, dtype=torch.int32, device=scores.device)
        numbers = torch.empty(rows, dtype=torch.int32, device=scores.device)
        centres = torch.empty(rows, dtype=torch.float32, device=scores.device)
        triton.launch(
            KERNELS().noised_candidates,
            scores,
            scores,
            kept,
            numbers,
            centres,
            scores.stride(0),
            classes,
            float(self.epsilon),
            K=self.k,
            CAPACITY=capacity,
            GROUPS=min(GROUPS, block),
            block=block,
        )
        return kept, numbers, centres

    def _draw(self, scores: Tensor, seeds: Tensor) -> Drawn:
        """The draws; each seed is used for an equal share of the rows."""
        kept, numbers, centres = self._candidates(scores)
        rows = scores.shape[0]
        largest = torch.empty(rows, self.samples, dtype=torch.float32, device=scores.device)
        places = torch.empty(rows, self.samples, dtype=torch.int32, device=scores.device)
        triton.launch(
            KERNELS().noised_draws,
            scores,
            scores,
            kept,
            numbers,
            centres,
            seeds,
            largest,
            places,
            scores.stride(0),
            rows // len(seeds),
            float(self.epsilon),
            self.samples,
            K=self.k,
            SLOTS=1 << self.k.bit_length(),
            CAPACITY=kept.shape[1],
            block=CHUNK,
            parts=-(-self.samples // 4),
            warps=1,
        )
        return Drawn(numbers, centres, largest, places)

    def backward(
        self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: KeptDraws
    ) -> tuple[Tensor | None, ...]:
        """The gradient with respect to the scores and the margins."""
        classes = scores.shape[1]
        out = torch.empty_like(scores, memory_format=torch.contiguous_format)
        triton.launch(
            KERNELS().noised_backward,
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
    def _lanes(self) -> int:
        """The smallest power of two that is at least B and at least 4, the number of Gaussians made together."""
        return max(4, 1 << (self.samples - 1).bit_length())
