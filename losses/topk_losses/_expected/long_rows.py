"""The expected k-th largest of long rows on the CPU, in torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from topk_losses._core.autograd import Rule
from topk_losses._expected.plain import below_largest
from topk_losses._expected.quadrature import rank_mean
from topk_losses._rows.candidates import Groups

__all__ = ["LongRows"]


class Kept(NamedTuple):
    """What the gradient needs."""

    classes: Tensor
    """The classes that can be the k-th largest ``(M, N)``."""
    probabilities: Tensor
    """Their probabilities to be it ``(M, N)``."""


@dataclass(frozen=True, eq=False)
class LongRows(Rule[Any]):
    """The expected k-th largest minus the largest score, which is treated as a constant.

    Attributes:
        k: Rank.
        epsilon: ε.
        groups: The scores in groups, with finite centres.
    """

    keeps = Kept

    k: int
    epsilon: float
    groups: Groups

    def plain(self, scores: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        """The values, computed without reading the scores."""
        return below_largest(scores, self.k, self.epsilon)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Any]:  # noqa: ARG002
        """The values, and what the gradient needs."""
        ranked = rank_mean(scores, self.groups, self.k, self.epsilon, with_gradient)
        offset = ranked.hard.double() - self.groups.largest.double()
        return offset + self.epsilon * ranked.shift, Kept(ranked.classes, ranked.probabilities)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor]:  # noqa: ARG002
        """The gradient: each row's probabilities times that of its value."""
        slope = torch.zeros_like(scores, memory_format=torch.contiguous_format)
        slope.scatter_add_(1, kept.classes.t(), (kept.probabilities * gradient).t().to(slope.dtype))
        return (slope,)
