"""Top-K grouping and transition on a CPU where Numba is installed."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import lazily
from topk_losses._grouping.plain import PlainGrouping
from topk_losses._rows.selection import largest

__all__ = ["NumbaGrouping", "refusal"]

KERNELS = lazily("topk_losses._grouping.cpu_kernels")


class Kept(NamedTuple):
    """What the gradient needs, besides the scores."""

    places: Tensor
    """The K best classes ``(N, K)``."""
    numbers: Tensor
    """Four numbers per row: the largest score, and factors for all classes, for the K best and for the label."""


def refusal(scores: Tensor) -> str | None:
    """Why the kernels do not take these scores."""
    return numba.refusal(scores, (torch.float32,))


class NumbaGrouping(PlainGrouping):
    """Top-K grouping and transition in two kernels, each of which reads a row once."""

    keeps = Kept
    passes_nan: ClassVar[bool] = True

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Any]:  # noqa: ARG002
        """The losses, and what the gradient needs."""
        rows, classes = scores.shape
        places = largest(scores, self.k).indices
        losses, numbers = scores.new_empty(rows), scores.new_empty(rows, KERNELS().KEPT)
        arrays = numba.array(scores), numba.array(labels).reshape(-1), numba.array(places)
        outputs = losses.numpy(), numbers.numpy()

        def part(first: int, last: int) -> None:
            buffers = KERNELS().buffers_for(classes)
            KERNELS().grouping_forward(
                *arrays, self.transition, self.detach_weight, *outputs, buffers, first, last
            )

        numba.over_rows(part, scores)
        return losses, Kept(places, numbers)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor]:
        """The gradient with respect to the scores."""
        out = torch.empty_like(scores, memory_format=torch.contiguous_format)
        tensors = (scores, labels, kept.places, kept.numbers, gradient)
        arrays = [numba.array(tensor) for tensor in tensors]
        arrays[1] = arrays[1].reshape(-1)
        numba.over_rows(
            lambda first, last: KERNELS().grouping_backward(*arrays, out.numpy(), first, last), scores
        )
        return (out,)
