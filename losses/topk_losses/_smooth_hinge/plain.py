"""The smooth convex top-K hinge: a projection onto the simplex with caps.

The loss is the maximum of ``⟨x, a⟩ - γ/2 ‖x‖²`` over ``0 <= x_j <= 1/K`` and ``Σ x_j <= 1``, where ``a_j`` is the
margin violation of the j-th of the other classes. The maximiser, which is the gradient, is
``x_j = clip((a_j - t) / γ, 0, 1/K)`` with the smallest ``t >= 0`` for which ``Σ x_j <= 1``.

``γ Σ x_j`` decreases in t and is linear between its breakpoints ``a_j`` and ``a_j - γ/K``. Once the two breakpoints are
known between which it crosses γ, t solves a linear equation. If t were below ``a_[K] - γ/K``, the K largest alone would
have 1/K each and sum to 1. So every class with ``a_j <= a_[K] - γ/K`` has x_j = 0.

On the CPU the values decide the method. If x is 0 for all but a few classes, only these are sorted. Otherwise Newton's
method, kept between two bounds, finds t in a few passes without sorting; it is exact once the classes with x_j > 0 are
right. On other devices all classes are sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core.autograd import Rule
from topk_losses._core.checks import values_are_readable
from topk_losses._core.shapes import with_nan
from topk_losses._rows.selection import largest, others_of, places_among

__all__ = ["PlainSmoothHinge"]

FEWEST = 15  # leading classes to try first: among 1,000 classes torch finds up to 15 faster than more
MASKED = -1e30  # replaces a score of -inf, because -inf times 0 is NaN


class Kept(NamedTuple):
    """What the gradient needs."""

    x: Tensor
    """x of all classes ``(N, L)``, or of the classes in ``places`` ``(N, m)``."""
    places: Tensor
    """The classes whose x was computed ``(N, m)``; empty if it is that of all classes."""


@dataclass(frozen=True)
class PlainSmoothHinge(Rule[Any]):
    """The smooth convex top-K hinge in torch."""

    keeps: ClassVar[Callable[..., Any]] = Kept

    k: int
    gamma: float

    @property
    def cap(self) -> float:
        """``γ / K``: a class at least this far above t has x = 1/K."""
        return self.gamma / self.k

    def of_labels(self, rows: Tensor, labels: Tensor, margin: float | Tensor) -> Tensor:
        """Losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``; one margin, or one per label ``(M, C)``."""
        best = largest(rows, min(rows.shape[1], max(FEWEST, 2 * self.k) + 1))
        # The K-th largest of a label's other classes may be the (K+1)-th of all.
        if not (values_are_readable(rows) and self._complete(best.values, self.k)):
            best = largest(rows, rows.shape[1])
        others = others_of(best.values, places_among(best.indices, labels, rows))
        return self._of_others(others, rows.gather(1, labels), margin)[0]

    def _complete(self, best: Tensor, kth: int) -> bool:
        """Whether x is 0 for all classes after these; ``kth`` is the index of the K-th of the other classes."""
        behind = best[:, kth] - best[:, -1] >= self.cap
        return bool((behind | ~(best[:, 0] < torch.inf)).all())

    def plain(self, scores: Tensor, labels: Tensor, margin: float | Tensor) -> Tensor:
        """The losses of one label per row in differentiable operations."""
        margin = margin.unsqueeze(1) if isinstance(margin, Tensor) else margin
        others = scores.scatter(1, labels, -torch.inf).sort(dim=1, descending=True).values[:, None, :-1]
        return self._of_others(others, scores.gather(1, labels), margin)[0].squeeze(1)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        margin: float | Tensor,
        *,
        with_gradient: bool,  # noqa: ARG002
    ) -> tuple[Tensor, Any]:
        """The losses, and x."""
        own = scores.gather(1, labels)
        margin = margin.unsqueeze(1) if isinstance(margin, Tensor) else margin
        others = scores.scatter(1, labels, -torch.inf)
        count = scores.shape[1] - 1
        readable = values_are_readable(scores)
        best = largest(others, min(count, max(FEWEST, 2 * self.k)) if readable else count)
        if best.values.shape[1] < count and not self._complete(best.values, self.k - 1):
            losses, x = self._of_many(others, best.values, own, margin)
            return losses, Kept(x, best.indices.new_empty(0))
        losses, x = self._of_others(best.values.unsqueeze(1), own, margin)
        return losses.squeeze(1), Kept(x.squeeze(1).to(scores.dtype), best.indices)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor, Tensor]:
        """The gradient: ``x_j`` for the other classes, ``-Σ x`` for the label, ``Σ x`` for the margin."""
        x = kept.x * gradient.unsqueeze(1)
        total = x.sum(1)
        by_score = x.new_zeros(scores.shape).scatter_(1, kept.places, x) if kept.places.ndim == 2 else x
        return by_score.scatter_(1, labels, -total.unsqueeze(1)), total

    def _of_others(self, others: Tensor, own: Tensor, margin: float | Tensor) -> tuple[Tensor, Tensor]:
        """The losses ``(M, C)`` and x ``(M, C, m)``, from the m largest other scores, descending, and the label's."""
        few = others[..., self.k - 1].detach() == -torch.inf
        invalid = ~((others.detach()[..., 0] < torch.inf) & (own.detach() < torch.inf))
        own = own.masked_fill(own == -torch.inf, 0).double().unsqueeze(2)
        margin = margin.unsqueeze(2) if isinstance(margin, Tensor) else margin
        # The margin is added last, so that large scores do not swallow it.
        violation = others.masked_fill(others == -torch.inf, MASKED).double() - own + margin
        x = ((violation - self._threshold(violation)) / self.gamma).clamp(0, 1 / self.k)
        losses = (x * violation - self.gamma / 2 * x * x).sum(2).clamp(min=0)
        losses = with_nan(losses.masked_fill(few, 0), invalid).to(others.dtype)
        return losses, x.detach().masked_fill(few.unsqueeze(2), 0)

    def _threshold(self, violation: Tensor) -> Tensor:
        """The smallest ``t >= 0`` ``(M, C, 1)`` with ``Σ x <= 1``, for violations ``(M, C, m)``, m >= k."""
        fixed = violation.detach()
        points = torch.cat([fixed, fixed - self.cap], 2).sort(dim=2).values
        low = torch.zeros_like(points[..., :1], dtype=torch.int64)
        high = low + points.shape[2] - 1
        for _ in range(points.shape[2].bit_length()):
            middle = (low + high) // 2
            total = (fixed - points.gather(2, middle)).clamp(0, self.cap).sum(2, keepdim=True)
            low = torch.where(total >= self.gamma, middle, low)
            high = torch.where(total >= self.gamma, high, middle)
        between = (points.gather(2, low) + points.gather(2, high)) / 2
        capped = fixed - self.cap > between
        free = (fixed > between) & ~capped
        left = self.gamma - self.cap * capped.sum(2, keepdim=True).double()
        count = free.sum(2, keepdim=True)
        total = violation.masked_fill(~free, 0).sum(2, keepdim=True)
        # With K classes at the cap and none between 0 and the cap, every t between the two points is a solution.
        return torch.where(count == 0, between, (total - left) / count.clamp(min=1)).relu()

    def _of_many(
        self, others: Tensor, best: Tensor, own: Tensor, margin: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """The losses ``(M,)`` and x ``(M, L)`` for many classes with x > 0, relative to the K-th of the others."""
        centre = best[:, self.k - 1 : self.k]
        few = centre == -torch.inf
        values = others - centre
        # The bound t >= 0, in these units; where it is active, the x sum to less than 1.
        least = own.masked_fill(own == -torch.inf, 0) - centre - margin
        t = torch.maximum(self._newton(values, best[:, : self.k] - centre), least)
        x = ((values - t) / self.gamma).clamp_(0, 1 / self.k).masked_fill_(few, 0)
        total = x.sum(1, keepdim=True)
        losses = (x * values.clamp_(min=MASKED)).sum(1, keepdim=True) - least * total
        losses = losses - self.gamma / 2 * x.square().sum(1, keepdim=True)
        invalid = ~((best[:, :1] < torch.inf) & (own < torch.inf))
        return with_nan(losses.clamp(min=0).masked_fill(few, 0), invalid).squeeze(1), x

    def _newton(self, values: Tensor, best: Tensor) -> Tensor:
        """The t ``(M, 1)`` with ``Σ x = 1``, for values relative to the K-th largest; ``best`` has the K largest."""
        low, high = torch.full_like(best[:, :1], -self.cap), best[:, :1]
        t, tolerance = low, 4 * torch.finfo(values.dtype).eps * self.gamma
        for _ in range(200):  # about ten are needed; bisection alone would take as many as t has bits
            share = (values - t).clamp_(0, self.cap)
            excess = share.sum(1, keepdim=True) - self.gamma
            capped = torch.count_nonzero(best - t > self.cap, 1)  # only the K largest can be at the cap
            free = (torch.count_nonzero(share, 1) - capped).clamp(min=1)
            low, high = torch.where(excess > 0, t, low), torch.where(excess > 0, high, t)
            step = t + excess / free.unsqueeze(1)
            before, t = t, torch.where((step >= low) & (step <= high), step, (low + high) / 2)
            if not ((excess.abs() > tolerance) & (t != before)).any():
                break
        return t
