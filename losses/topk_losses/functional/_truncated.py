"""Truncated top-K entropy: cross-entropy without the K - 1 largest of the other classes.

A label among the K best competes with the classes behind them, any other label with the K-th best as well. In units of
the K-th largest exponential, with B the sum behind the K best and ``o`` the label's exponential, the loss is
``log(1 + B / o)`` or, the label being one of those behind, ``log((1 + B) / o)``. Its gradient is a multiple of the
exponentials behind, by ``1 / (o + B)`` or ``1 / (1 + B)``, but for the K best and the label.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._fused import Margin, fused_losses
from topk_losses._kernels.exponentials import kept_and_sum, multiples
from topk_losses._kernels.selection import largest
from topk_losses.functional._ranks import among, invalid_rows_to_nan, log_sum_without

__all__ = ["TruncatedEntropy"]


@dataclass(frozen=True)
class TruncatedEntropy:
    """The rule of truncated top-K entropy."""

    k: int

    def losses(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The kernel: losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``."""
        if labels.shape[1] == 1:
            return fused_losses(self, rows, labels).unsqueeze(1)
        return self._plain(rows, labels)

    def plain(self, scores: Tensor, labels: Tensor, margin: Margin) -> Tensor:  # noqa: ARG002
        """The losses of one label per row in differentiable operations."""
        return self._plain(scores, labels).squeeze(1)

    def _plain(self, rows: Tensor, labels: Tensor) -> Tensor:
        top = largest(rows, self.k)
        # Relative to the largest score, as log_softmax has it.
        centre = top.values[:, :1].detach()
        behind = log_sum_without(rows - centre, top.indices)
        others = torch.logaddexp(behind, top.values[:, -1:] - centre)
        own = rows.gather(1, labels) - centre
        inside = among(top.indices, labels, rows)
        losses = torch.where(inside, -logsigmoid(own - behind), others - own)
        return invalid_rows_to_nan(losses, top.values)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        margin: Margin,  # noqa: ARG002
        with_gradient: bool,  # noqa: ARG002
    ) -> tuple[Tensor, list[Tensor]]:
        """The losses; what the slopes of the classes behind need, the K best, and their slopes and the label's."""
        top = largest(scores, self.k)
        last = top.values[:, -1:]
        last = last.masked_fill(last == -torch.inf, 0)  # then nothing is behind
        kept, behind = kept_and_sum(scores, last, top.indices)
        own = (scores.gather(1, labels) - last).double().clamp(min=torch.finfo(scores.dtype).min)
        inside = (top.indices == labels).any(1, keepdim=True)
        log_behind = behind.log()
        losses = torch.where(inside, -logsigmoid(own - log_behind), torch.log1p(behind) - own)
        # Both denominators are at least 1, but for masked labels, which have no gradient.
        factor = (
            torch.where(inside, -torch.logaddexp(own, log_behind), -torch.log1p(behind)).exp().clamp(max=1)
        )
        slopes = torch.zeros_like(top.values)
        slopes[:, -1:] = factor.masked_fill(inside, 0)
        by_label = torch.where(inside, -(log_behind - own).sigmoid(), -1)
        numbers = torch.cat([factor, by_label], 1).to(scores.dtype)
        losses = invalid_rows_to_nan(losses.to(scores.dtype), top.values)
        return losses.squeeze(1), [kept, top.indices, slopes, numbers]

    def backward(
        self, gradient: Tensor, scores: Tensor, labels: Tensor, saved: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """A multiple of the exponentials behind, the slope of the K-th best, and the label's own."""
        kept, places, slopes, numbers = saved
        along = gradient.unsqueeze(1)
        by_score = multiples(kept, scores, numbers[:, :1] * along)
        by_score.scatter_(1, places, slopes * along)
        return by_score.scatter_add_(1, labels, numbers[:, 1:] * along), torch.zeros_like(gradient)
