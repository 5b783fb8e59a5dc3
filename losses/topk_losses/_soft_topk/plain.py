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
from topk_losses._core.checks import values_are_readable
from topk_losses._core.shapes import with_nan
from topk_losses._rows.selection import largest
from topk_losses._soft_topk.shapes import LOWEST, SHAPES, Shape

__all__ = ["PlainSoftTopK", "Standing", "differentiable", "memberships", "standing", "threshold_of"]

STEPS = 40  # about eight are needed; where values cannot be read, all are taken
SMALL = 1e-9  # the size of a last step: the error after it is about its square


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


class Standing(NamedTuple):
    """A row's scores as distances from its K-th largest score, in units of τ, float64.

    Attributes:
        values: ``(M, L)``; very low for masked classes, all 0 in rows without a threshold, NaN in invalid rows.
        places: Classes of the K + 1 largest scores, descending, ``(M, K + 1)``; all classes if there are fewer.
        few: Whether at most K classes are unmasked, ``(M, 1)``; such a row has no threshold.
        invalid: Whether the row contains NaN or +inf, ``(M, 1)``.
    """

    values: Tensor
    places: Tensor
    few: Tensor
    invalid: Tensor


def standing(rows: Tensor, k: int, tau: float) -> Standing:
    """Rows ``(M, L)`` as distances, in differentiable operations."""
    top = largest(rows, min(k + 1, rows.shape[1]))
    best = top.values.detach()
    few = torch.ones_like(best[:, :1], dtype=torch.bool) if k >= rows.shape[1] else best[:, k:] == -torch.inf
    centre = best[:, k - 1 : k].double().masked_fill(few, 0)
    invalid = ~(best[:, :1] < torch.inf)
    values = ((rows.double() - centre) / tau).clamp(min=LOWEST).masked_fill(few, 0)
    # Spoilt here as well as at the end, because a bounded shape has gradient 0 outside its bounds and would stop NaN.
    return Standing(with_nan(values, invalid), top.indices, few, invalid)


def threshold_of(now: Standing, k: int, shape: Shape) -> Tensor:
    """The threshold ``(M, 1)`` without derivatives: the root of a monotone function between two bounds.

    Every evaluation tightens the bounds; a step of Newton's method that leaves them is replaced by their midpoint.
    """
    values = now.values.detach()
    edge = values.gather(1, now.places[:, k - 1 : k + 1])
    if shape.by_middle or edge.shape[1] == 1:
        return edge.mean(1, keepdim=True)
    above, rest = _split(values, now.places, k)
    below, beyond = shape.bracket(k, values.shape[1])
    low, high = edge[:, 1:] - below, edge[:, :1] + beyond
    level = (low + high) / 2
    readable = values_are_readable(values)
    for _ in range(STEPS):
        value, slope = shape.equation(above - level, rest - level)
        low, high = torch.where(value < 0, level, low), torch.where(value > 0, level, high)
        step = level - value / slope
        step = torch.where((step >= low) & (step <= high), step, (low + high) / 2)
        step = torch.where(value == 0, level, step)
        before, level = level, step
        if readable and not ((level - before).abs() > SMALL).any():
            break
    return level


def differentiable(now: Standing, k: int, shape: Shape) -> Tensor:
    """The threshold ``(M, 1)`` with its derivatives.

    Two further steps of Newton's method inside autograd do not change the value, and give it the first three
    derivatives, because each step doubles the order of the error.
    """
    if shape.by_middle:
        return now.values.gather(1, now.places[:, k - 1 : k + 1]).mean(1, keepdim=True)
    level = threshold_of(now, k, shape)
    if now.places.shape[1] == k:
        return level
    above, rest = _split(now.values, now.places, k)
    for _ in range(2):
        value, slope = shape.equation(above - level, rest - level)
        flat = slope == 0
        level = level - (value / slope.masked_fill(flat, 1)).masked_fill(flat, 0)
    return level


def _split(values: Tensor, places: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The values of the K best ``(M, K)``, and all values with those of the K best very low ``(M, L)``."""
    best = places[:, :k]
    return values.gather(1, best), values.scatter(1, best, LOWEST)
