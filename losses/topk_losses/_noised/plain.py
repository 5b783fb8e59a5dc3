"""The noised top-K hinge in torch, and what its rules with kernels share: what they keep, second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core.autograd import Rule
from topk_losses._core.shapes import class_last, computing, per_label, with_nan_where_invalid
from topk_losses._noised.draws import Generators, noised_draws

__all__ = ["DrawnHinge", "KeptDraws", "noised_losses"]


def noised_losses(
    k: int, epsilon: float, samples: int, margin: float | Tensor, noise: Tensor | None, generator: Generators
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from rows ``(M, L)`` and labels ``(M, C)`` to the losses ``(M, C)``.

    It uses the noise ``(B, N, L, ...)`` if it is given, and otherwise draws noise.
    """
    given = None if noise is None else torch.stack([class_last(draw) for draw in noise.unbind(0)])

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        largest = rows.detach().amax(1, keepdim=True)
        draws = noised_draws(rows, k + 1, epsilon, samples, given, generator)
        # Relative to a (K+1)-th largest score, so that the noise is not rounded away beside large scores.
        near = rows.detach().gather(1, draws.classes[:, :1])
        near = torch.where(near == -torch.inf, largest, near)
        # One gather for both, since the gradient of each gather is a tensor of the scores' size.
        picked = rows.gather(1, torch.cat([draws.classes, labels], 1)) - near
        kth, own = picked.tensor_split([draws.classes.shape[1]], 1)
        top = (kth.mean(1) + draws.noise).unsqueeze(1)
        return with_nan_where_invalid(top - own + per_label(margin, labels, rows), largest).relu()

    return losses


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
        own = rows.gather(1, labels.clamp(0, rows.shape[1] - 1).unsqueeze(1)).squeeze(1)
        losses: Tensor = (chosen.mean(1) - own + margin) * kept.active
        return losses
