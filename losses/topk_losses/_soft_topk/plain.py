"""The soft top-K by a threshold in torch: memberships, and the losses on them.

Let ``w_j = F'_j / Σ F'`` at the threshold; if the threshold is the midpoint of two scores, w is 1/2 for these two. Then
``∂p_y / ∂s_j = F'_y (1[j = y] - w_j) / τ``, so the gradient of a loss is ``w_j - 1[j = y]`` times one number per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core.autograd import RuleOfLabels
from topk_losses._rows.invalid import with_nan
from topk_losses._soft_topk.shapes import SHAPES, Shape
from topk_losses._soft_topk.threshold import Standing, differentiable, standing, threshold_of

__all__ = ["PlainSoftTopK", "memberships"]


class Kept(NamedTuple):
    """What the gradient needs."""

    shares: Tensor
    """w ``(N, L)``."""
    slopes: Tensor
    """The factor of ``w - 1[j = y]`` in the gradient, ``(N, 1)``."""


def memberships(rows: Tensor, k: int, tau: float, shape: str) -> Tensor:
    """The memberships p ``(M, L)`` of rows, in differentiable operations."""
    now = standing(rows, k, tau)
    p = SHAPES[shape].chance(now.values - differentiable(now, k, SHAPES[shape])).to(rows.dtype)
    p = torch.where(now.few, (rows.detach() > -torch.inf).to(p.dtype), p)
    return with_nan(p, now.invalid)


@dataclass(frozen=True)
class PlainSoftTopK(RuleOfLabels[Any]):
    """The rule of the loss ``-log p_y`` (``by_log``) or ``1 - p_y``."""

    keeps: ClassVar[Callable[..., Any]] = Kept

    k: int
    tau: float
    shape: str
    by_log: bool

    @property
    def _form(self) -> Shape:
        return SHAPES[self.shape]

    def of_labels(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The losses ``(M, C)`` for labels ``(M, C)`` in differentiable operations."""
        now = standing(rows, self.k, self.tau)
        level = differentiable(now, self.k, self._form)
        return self._losses(now.values.gather(1, labels) - level, now, rows.dtype)

    def _losses(self, x: Tensor, now: Standing, dtype: torch.dtype) -> Tensor:
        losses = -self._form.log_chance(x) if self.by_log else self._form.miss(x)
        return with_nan(losses.to(dtype).masked_fill(now.few, 0), now.invalid)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Any]:  # noqa: ARG002
        """The losses, and what the gradient needs."""
        now = standing(scores, self.k, self.tau)
        x = now.values - threshold_of(now, self.k, self._form)
        own = x.gather(1, labels)
        losses = self._losses(own, now, scores.dtype)
        slopes = (self._form.hazard(own) if self.by_log else self._form.density(own)) / self.tau
        # A masked label's is beyond float32; an infinite one times the gradient 0 of an ignored sample would be NaN.
        slopes = slopes.clamp(max=torch.finfo(scores.dtype).max)
        if self._form.by_middle:
            shares = torch.zeros_like(scores).scatter(1, now.places[:, self.k - 1 : self.k + 1], 0.5)
        else:
            shares = self._form.shares(x).to(scores.dtype)
        return losses.squeeze(1), Kept(shares, slopes.to(scores.dtype).masked_fill(now.few, 0))

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor]:  # noqa: ARG002
        """The gradient ``slope (w - 1[j = y])``."""
        along = gradient.unsqueeze(1) * kept.slopes
        return ((kept.shares * along).scatter_add_(1, labels, -along),)
