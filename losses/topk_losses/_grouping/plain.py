"""The losses in which the K best classes count as one: top-K grouping, and the transition to it.

With ``q = softmax(s)`` and S the probability of the K best classes, the loss of a label among them is ``-log S``
(grouping) or ``-(1 - S) log q_y - S log S`` (transition), that of any other label ``-log q_y``. In every case the
gradient is ``A q_j + B q_j [j among the K best] - C [j = y]`` with three numbers A, B, C per row, so it takes one pass
over the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from topk_losses._core.autograd import RuleOfLabels
from topk_losses._core.shapes import log_softmax, softmax
from topk_losses._rows.selection import among, largest

__all__ = ["PlainGrouping"]


class Kept(NamedTuple):
    """What the gradient needs."""

    q: Tensor
    """``softmax(s)`` ``(N, L)``."""
    places: Tensor
    """The K best classes ``(N, K)``."""
    best_q: Tensor
    """Their q ``(N, K)``."""
    numbers: Tensor
    """A, B and C ``(3, N)``."""


@dataclass(frozen=True)
class PlainGrouping(RuleOfLabels[Any]):
    """Top-K grouping (``transition=False``) and top-K transition in torch."""

    keeps: ClassVar[Callable[..., Any]] = Kept

    k: int
    transition: bool
    detach_weight: bool = False

    def of_labels(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The losses ``(M, C)`` for labels ``(M, C)`` in differentiable operations."""
        log_q = log_softmax(rows)
        places = largest(rows, self.k).indices  # of the scores: rounding makes probabilities equal
        log_union = log_q.gather(1, places).logsumexp(1, keepdim=True)
        grouped = torch.where(among(places, labels, rows), -log_union, -log_q.gather(1, labels))
        if not self.transition:
            return grouped
        union = (log_union.detach() if self.detach_weight else log_union).exp()
        own = log_q.gather(1, labels)
        # S would get a gradient of 0 · inf from a masked label that counts for nothing; the reduction sets its loss.
        masked = own.detach() == -torch.inf
        return (1 - union) * -own.masked_fill(masked, 0) + union * grouped.masked_fill(masked, 0)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Kept]:  # noqa: ARG002
        """The losses, and what the gradient needs."""
        best, places = largest(scores, self.k)
        q = softmax(scores)
        best_q = q.gather(1, places)
        # log q_y from the largest score, whose q never underflows.
        log_q = (scores.gather(1, labels) - best[:, :1] + best_q[:, :1].log()).squeeze(1)
        # That of a masked label is finite, because 0 times it is its share of the loss or of the gradient.
        log_q = log_q.clamp(min=torch.finfo(log_q.dtype).min)
        log_union = best_q.sum(1).log_().clamp_(max=0)
        inside = (places == labels).any(1)
        union = log_union.exp()
        if not self.transition:
            losses = torch.where(inside, log_union, log_q).neg_()
            own = inside.to(union.dtype)
            numbers = torch.stack([torch.ones_like(union), -own / union, 1 - own])
            return losses, Kept(q, places, best_q, numbers)
        losses = torch.where(inside, (1 - union) * log_q + union * log_union, log_q).neg_()
        return losses, Kept(q, places, best_q, self._numbers(union, log_union, log_q, inside))

    def _numbers(self, union: Tensor, log_union: Tensor, log_q: Tensor, inside: Tensor) -> Tensor:
        """A, B and C of the transition."""
        if self.detach_weight:
            all_classes, among_best = torch.ones_like(union), torch.full_like(union, -1.0)
        else:
            # dS / ds_j = q_j ([j among the K best] - S)
            among_best = log_q - log_union - 1
            all_classes = 1 - union - among_best * union
        return torch.stack(
            [
                torch.where(inside, all_classes, 1),
                torch.where(inside, among_best, 0),
                torch.where(inside, 1 - union, 1),
            ]
        )

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Kept) -> tuple[Tensor]:  # noqa: ARG002
        """The gradient ``A q_j + B q_j [j among the K best] - C [j = y]``."""
        everywhere, best, label = (kept.numbers * gradient).unsqueeze(-1).unbind(0)
        by_score = kept.q * everywhere
        by_score.scatter_(1, kept.places, kept.best_q * (everywhere + best))
        return (by_score.scatter_add_(1, labels, -label),)
