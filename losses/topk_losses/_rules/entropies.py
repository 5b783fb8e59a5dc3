"""Cross-entropy and its relatives, in torch: rows ``(M, L)`` and labels ``(M, C)`` to losses ``(M, C)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from topk_losses._core.checks import all_within
from topk_losses._core.reduction import Reduction, reduce_loss
from topk_losses._core.shapes import cross_entropies, log_softmax, per_label
from topk_losses._rows.invalid import log_sum_without, with_nan_where_invalid

__all__ = ["adjusted", "entropy_of", "focal", "generalized", "ldam", "ldam_directly"]


def entropy_of(
    scores: Tensor, target: Tensor, how: Reduction, change: Callable[[Tensor], Tensor] = lambda rows: rows
) -> Tensor:
    """Cross-entropy of scores that a function of rows changes, by torch's own kernels wherever they are fast."""

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return cross_entropies(change(rows), labels)

    def direct(rows: Tensor, target: Tensor, **shared: Any) -> Tensor:
        return torch.nn.functional.cross_entropy(change(rows), target, **shared)

    return reduce_loss(losses, scores, target, how, direct=direct)


def focal(rows: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """``(1 - p_y)^γ (-log p_y)``."""
    if gamma == 0:
        return cross_entropies(rows, labels)
    own = log_softmax(rows).gather(1, labels)
    bounds = torch.finfo(own.dtype)
    if not all_within(own, -bounds.max, -bounds.tiny):
        # At 0 and at infinity the derivatives of the power and of the product would be 0 · inf.
        own = own.clamp(-bounds.max, -bounds.tiny)
    return (-torch.expm1(own)) ** gamma * -own


def generalized(rows: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """``(1 - q_y^γ) / γ``."""
    own = log_softmax(rows).gather(1, labels)
    return -torch.expm1(own) if gamma == 1 else torch.expm1(gamma * own) / -gamma


def ldam(rows: Tensor, labels: Tensor, margins: Tensor, scale: float) -> Tensor:
    """``-log softmax(λ (s - m_y δ_y))_y``."""
    against = _log_odds_against(rows, labels, scale) + scale * per_label(margins, labels, rows)
    return softplus(against, threshold=50)  # where log(1 + exp(x)) is x in float64 as well


def ldam_directly(rows: Tensor, target: Tensor, margins: Tensor, scale: float, **shared: Any) -> Tensor:
    """:func:`ldam` by torch's kernels, for labels ``(M,)``."""
    labels = target.clamp(0, rows.shape[1] - 1).unsqueeze(1)  # an ignored label may be out of range
    lowered = (scale * rows).scatter_add_(1, labels, -scale * margins.to(rows.dtype)[labels])
    return torch.nn.functional.cross_entropy(lowered, target, **shared)


def _log_odds_against(rows: Tensor, labels: Tensor, scale: float) -> Tensor:
    """``log Σ_{j≠c} exp(λ s_j) - λ s_c`` for the labels c, accurate even where ``p_c`` rounds to 1.

    Of several labels only the class with the largest score can have more than half of the sum. So only for that class
    does subtracting its own term lose accuracy, and the sum over the others is computed separately.
    """
    largest = rows.detach().argmax(1, keepdim=True)
    rows = scale * (rows - rows.detach().gather(1, largest))
    rest = log_sum_without(rows, largest)
    total = rows.logsumexp(1, keepdim=True)
    own = rows.gather(1, labels)
    first = labels == largest
    share = (own - total).masked_fill(first, -torch.inf).exp()
    return with_nan_where_invalid(torch.where(first, rest, total + torch.log1p(-share)) - own, total)


def adjusted(rows: Tensor, class_counts: Tensor, tau: float, gamma: float = 0.0) -> Tensor:
    """``(n / max n)^γ s + τ log n``; the constant ``-τ log Σ n`` would not change cross-entropy."""
    logs = class_counts.to(rows.dtype).log()
    if gamma:
        rows = rows * torch.exp(gamma * (logs - logs.amax()))
    return rows + (logs if tau == 1 else tau * logs)
