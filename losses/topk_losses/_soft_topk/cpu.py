"""The soft top-K by a threshold on a CPU where Numba is installed."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import lazily
from topk_losses._rows.selection import largest
from topk_losses._soft_topk.plain import PlainSoftTopK
from topk_losses._soft_topk.shapes import CODES

__all__ = ["NumbaSoftTopK", "refusal"]

KERNELS = lazily("topk_losses._soft_topk.cpu_kernels")


class Kept(NamedTuple):
    """What the gradient needs, besides the scores."""

    places: Tensor
    """The K + 1 best classes ``(N, K + 1)``."""
    numbers: Tensor
    """The threshold, and the factor of ``w_j - 1[j = y]`` in the gradient, ``(N, 2)`` in float64."""


def refusal(scores: Tensor) -> str | None:
    """Why the kernels do not take these scores."""
    return numba.refusal(scores, (torch.float32,))


class NumbaSoftTopK(PlainSoftTopK):
    """The soft top-K losses in two kernels for all shapes."""

    keeps = Kept
    passes_nan: ClassVar[bool] = True

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Any]:  # noqa: ARG002
        """The losses, and what the gradient needs."""
        rows, classes = scores.shape
        places = largest(scores, self.k + 1).indices
        losses = scores.new_empty(rows)
        numbers = scores.new_empty(rows, KERNELS().KEPT, dtype=torch.float64)
        arrays = [numba.array(tensor) for tensor in (scores, labels.reshape(-1), places)]
        bounds = self._form.bracket(self.k, classes)
        guess = NormalDist().inv_cdf(self.k / classes)  # of the Gaussian shape
        how = float(self.tau), CODES[self.shape], self.by_log, *bounds, guess
        outputs = losses.numpy(), numbers.numpy()

        def part(first: int, last: int) -> None:
            buffers = (
                KERNELS().buffers_for(classes),
                KERNELS().doubles_for(self.k),
                KERNELS().scratch_for(self.k),
            )
            KERNELS().soft_forward(*arrays, *how, *outputs, *buffers, first, last)

        numba.over_rows(part, scores)
        return losses, Kept(places, numbers)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor]:
        """The gradient with respect to the scores."""
        out = torch.empty_like(scores, memory_format=torch.contiguous_format)
        tensors = (scores, labels.reshape(-1), kept.places, kept.numbers, gradient)
        arrays = [numba.array(tensor) for tensor in tensors]
        how = float(self.tau), CODES[self.shape]

        def part(first: int, last: int) -> None:
            KERNELS().soft_backward(*arrays, *how, out.numpy(), KERNELS().scratch_for(self.k), first, last)

        numba.over_rows(part, scores)
        return (out,)
