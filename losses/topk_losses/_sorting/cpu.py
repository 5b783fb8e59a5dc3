"""The cross-entropy with a sorting network of Cauchy comparators, on a CPU where Numba is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.autograd import RuleOfLabels
from topk_losses._core.backends import lazily
from topk_losses._rows.selection import largest
from topk_losses._sorting.plain import Network, plain_losses

__all__ = ["NumbaSorting", "refusal"]

KERNELS = lazily("topk_losses._sorting.cpu_kernels")
COMPARED_PER_THREAD = 2**17  # the least product of rows, wires and stages for which a thread pays


def refusal(rows: Tensor, labels: Tensor, network: Network) -> str | None:
    """Why the kernel does not take these rows ``(M, L)`` and labels ``(M, C)``."""
    if labels.shape[1] != 1:
        return "the targets are soft"
    if network.relaxation != "cauchy":
        return "the kernel has no logistic comparators"
    if not any(network.mixture[1:]):
        return "top-1 alone needs no network"
    return numba.refusal(rows, (torch.float32,))


class Kept(NamedTuple):
    """The non-zero entries of the gradient."""

    places: Tensor
    """The candidates including the label ``(N, m)``; fewer than m if there are fewer classes."""
    slopes: Tensor
    """The derivatives of the loss with respect to their scores, in the same shape."""


@dataclass(frozen=True)
class NumbaSorting(RuleOfLabels[Any]):
    """The rule in one kernel, which passes through the network forward and backward."""

    keeps: ClassVar[Callable[..., Any]] = Kept

    network: Network

    def of_labels(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The losses ``(M, C)`` for labels ``(M, C)`` in differentiable operations."""
        return plain_losses(rows, labels, self.network)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Kept]:
        """The losses and their gradient."""
        network, rows = self.network, len(scores)
        places = largest(scores, min(network.candidates, scores.shape[1])).indices.contiguous()
        losses, slopes = scores.new_empty(rows), scores.new_empty(places.shape)
        arrays = [numba.array(tensor) for tensor in (scores, labels.reshape(-1), places)]
        # The weight of each rank's probability: the sum of the P_k with k >= 2 that include this rank.
        reaching = list(accumulate(reversed([0.0, *network.mixture[1:]])))[::-1]
        weights = torch.tensor(reaching, dtype=torch.float64, device="cpu").numpy()
        comparators = KERNELS().comparators(network.candidates)
        relaxed = float(network.steepness), comparators, with_gradient
        how = network.candidates, network.mixture[0], weights, *relaxed
        outputs = losses.numpy(), slopes.numpy()

        def part(first: int, last: int) -> None:
            buffers = KERNELS().buffers_for(network.candidates)
            KERNELS().sorting(*arrays, *how, *outputs, *buffers, first, last)

        numba.in_parts(part, rows, max(1, COMPARED_PER_THREAD // (2 * len(comparators))))
        return losses, Kept(places, slopes)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor]:  # noqa: ARG002
        """The gradient: the slopes of the candidates at their classes, else 0."""
        out = torch.zeros_like(scores, memory_format=torch.contiguous_format)
        return (out.scatter_(1, kept.places, kept.slopes * gradient.unsqueeze(1)),)
