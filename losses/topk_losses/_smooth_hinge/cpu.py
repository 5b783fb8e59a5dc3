"""The smooth convex top-K hinge on a CPU where Numba is installed."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import lazily
from topk_losses._rows import selection
from topk_losses._smooth_hinge.plain import PlainSmoothHinge

__all__ = ["NumbaSmoothHinge", "refusal"]

KERNELS = lazily("topk_losses._smooth_hinge.cpu_kernels")


class Kept(NamedTuple):
    """What the gradient needs, besides the scores."""

    numbers: Tensor
    """Three numbers per row: a centre near t, t minus the centre, and the sum of x."""


def refusal(scores: Tensor, k: int, asked: bool = False) -> str | None:
    """Why the kernels do not take these scores; the kernel that selects the K + 1 largest must take them, too."""
    return selection.refusal(scores, k + 1, asked)


class NumbaSmoothHinge(PlainSmoothHinge):
    """The smooth convex top-K hinge in two kernels."""

    keeps = Kept
    passes_nan: ClassVar[bool] = True

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        margin: float | Tensor,
        *,
        with_gradient: bool,  # noqa: ARG002
    ) -> tuple[Tensor, Any]:
        """The losses, and what the gradient needs."""
        rows, classes = scores.shape
        losses, numbers = scores.new_empty(rows), scores.new_empty(rows, KERNELS().KEPT)
        places = selection.largest(scores, self.k + 1).indices
        tensors = (scores, labels.reshape(-1), places)
        arrays = *(numba.array(tensor) for tensor in tensors), numba.numbers(margin), float(self.gamma)
        outputs = losses.numpy(), numbers.numpy()

        def part(first: int, last: int) -> None:
            buffers = KERNELS().buffers_for(self.k), KERNELS().buffers_for(classes)
            KERNELS().hinge_forward(*arrays, *outputs, *buffers, first, last)

        numba.over_rows(part, scores)
        return losses, Kept(numbers)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor, Tensor]:
        """The gradient with respect to the scores and the margins."""
        by_score = torch.empty_like(scores, memory_format=torch.contiguous_format)
        by_margin = scores.new_empty(len(scores))
        tensors = (scores, labels.reshape(-1), gradient, kept.numbers)
        arrays = *(numba.array(tensor) for tensor in tensors), self.k, float(self.gamma)
        outputs = by_score.numpy(), by_margin.numpy()
        numba.over_rows(lambda first, last: KERNELS().hinge_backward(*arrays, *outputs, first, last), scores)
        return by_score, by_margin
