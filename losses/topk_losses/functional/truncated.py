"""Truncated top-K entropy: cross-entropy without the K - 1 highest-scoring of the other classes.

A label among the K best competes with all classes after them; any other label competes with the K-th best as well. In
units of the K-th largest exponential, let B be the sum of the exponentials after the K best and ``o`` that of the
label. The loss is ``log(1 + B / o)`` for a label among the K best, else ``log((1 + B) / o)``. For the classes after
the K best, except the label, the gradient is their exponential times ``1 / (o + B)`` or ``1 / (1 + B)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._core.autograd import RuleOfLabels
from topk_losses._core.checks import check_topk
from topk_losses._core.reduction import Reduction, Shared, reduce_loss, takes_single_rows
from topk_losses._rows.exponentials import Kept, kept_and_sum, multiples
from topk_losses._rows.invalid import log_sum_without, with_nan_where_invalid
from topk_losses._rows.places import among
from topk_losses._rows.selection import largest

__all__ = ["truncated_topk_entropy"]


@takes_single_rows
def truncated_topk_entropy(
    scores: Tensor,
    target: Tensor,
    k: int,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Truncated top-K entropy: cross-entropy without the K - 1 highest-scoring of the other classes.

    .. math:: \log\Bigl(1 + \sum_{j \in R} e^{s_j - s_y}\Bigr), \qquad
        R = \{j \ne y\} \text{ without the } K - 1 \text{ largest scores}

    At K = 1 it is cross-entropy.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Lapin, Hein, Schiele: Loss Functions for Top-k Error: Analysis and Insights, CVPR 2016.

    Example:
        >>> import torch
        >>> truncated_topk_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), k=2)
        tensor(0.3133)
    """
    check_topk(scores, k)
    losses = TruncatedEntropy(k).losses
    return reduce_loss(losses, scores, target, Reduction(**shared))


@dataclass(frozen=True)
class TruncatedEntropy(RuleOfLabels[Kept]):
    """The rule of truncated top-K entropy."""

    keeps = Kept

    k: int

    def of_labels(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The losses ``(M, C)`` for labels ``(M, C)`` in differentiable operations."""
        top = largest(rows, self.k)
        # Relative to the largest score, as in log_softmax.
        centre = top.values[:, :1].detach()
        behind = log_sum_without(rows - centre, top.indices)
        others = torch.logaddexp(behind, top.values[:, -1:] - centre)
        own = rows.gather(1, labels) - centre
        inside = among(top.indices, labels, rows)
        losses = torch.where(inside, -logsigmoid(own - behind), others - own)
        return with_nan_where_invalid(losses, top.values)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Kept]:  # noqa: ARG002
        """The losses, and what the gradient needs; the K best classes and the label are kept one by one."""
        top = largest(scores, self.k)
        last = top.values[:, -1:]
        last = last.masked_fill(last == -torch.inf, 0)  # no class is left after the K best
        exponentials, behind = kept_and_sum(scores, last, top.indices)
        own = (scores.gather(1, labels) - last).double().clamp(min=torch.finfo(scores.dtype).min)
        inside = (top.indices == labels).any(1, keepdim=True)
        log_behind = behind.log()
        losses = torch.where(inside, -logsigmoid(own - log_behind), torch.log1p(behind) - own)
        # Both denominators are at least 1, except for masked labels, which have no gradient.
        factor = (
            torch.where(inside, -torch.logaddexp(own, log_behind), -torch.log1p(behind)).exp().clamp(max=1)
        )
        slopes = torch.zeros_like(top.values)
        slopes[:, -1:] = factor.masked_fill(inside, 0)
        by_label = torch.where(inside, -(log_behind - own).sigmoid(), -1)
        numbers = torch.cat([factor, by_label], 1).to(scores.dtype)
        losses = with_nan_where_invalid(losses.to(scores.dtype), top.values)
        return losses.squeeze(1), Kept(exponentials, top.indices, slopes, numbers)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Kept) -> tuple[Tensor]:
        """Multiples of the exponentials after the K best, with the slopes of the K best and of the label."""
        exponentials, places, slopes, numbers = kept
        along = gradient.unsqueeze(1)
        by_score = multiples(exponentials, scores, numbers[:, :1] * along)
        by_score.scatter_(1, places, slopes * along)
        return (by_score.scatter_add_(1, labels, numbers[:, 1:] * along),)
