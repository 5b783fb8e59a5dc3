"""The noised top-K hinge with draws made by kernels: what such rules keep, and their second derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core.autograd import Rule
from topk_losses._core.shapes import computing

__all__ = ["DrawnHinge", "KeptDraws"]


class KeptDraws(NamedTuple):
    """What the gradient needs."""

    active: Tensor
    """1 where the loss is above 0, 1 or NaN where it is NaN, else 0 ``(N,)``."""
    places: Tensor
    """The (K+1)-th largest class of each draw ``(N, B)``; -1 in rows without draws."""


@dataclass(frozen=True)
class DrawnHinge(Rule[Any]):
    """The noised top-K hinge with K, ε and B, for a margin and the seeds of a backend's draws.

    For given draws it is linear in the scores where it is not 0.
    """

    keeps = KeptDraws

    k: int
    epsilon: float
    samples: int
    ignore_index: int = -100
    complete: ClassVar[bool] = True

    def plain(self, scores: Tensor, labels: Tensor, margin: float | Tensor, seeds: Tensor) -> Tensor:
        """The losses by the kernel, for whose draws they are differentiable; torch would draw different noise."""
        constant = margin.detach() if isinstance(margin, Tensor) else margin
        losses, kept = self.forward(scores.detach(), labels, constant, seeds, with_gradient=True)
        linear = self.again(scores, labels, (margin, seeds), kept)
        return losses + (linear - linear.detach())

    def again(self, scores: Tensor, labels: Tensor, inputs: Sequence[Any], kept: KeptDraws) -> Tensor:
        """The losses for the draws that were made, without their noise, which is constant."""
        rows, margin = computing(scores), inputs[0]
        chosen = rows.gather(1, kept.places.clamp(min=0).to(torch.int64)).masked_fill(kept.places < 0, 0)
        own = rows.gather(1, labels.clamp(0, rows.shape[1] - 1)).squeeze(1)
        losses: Tensor = (chosen.mean(1) - own + margin) * kept.active
        return losses
