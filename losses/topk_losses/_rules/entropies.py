"""Cross-entropy and its relatives, in torch: each takes rows ``(M, L)`` and labels ``(M, C)`` to losses ``(M, C)``."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._core.shapes import log_softmax, per_label
from topk_losses._rows.invalid import log_sum_without, with_nan_where_invalid

__all__ = ["adjusted", "cross_entropy", "focal", "generalized", "ldam"]

CERTAIN = 100.0  # above this -log p, 1 - p is 1 in any precision, and powers of -log p may overflow


def cross_entropy(rows: Tensor, labels: Tensor) -> Tensor:
    """``-log softmax(s)_y``."""
    return -log_softmax(rows).gather(1, labels)


def focal(rows: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """``(1 - p_y)^γ (-log p_y)``."""
    entropy = -log_softmax(rows).gather(1, labels)
    # 1 - p = u·g(u) with u = -log p and g(u) = (1 - exp(-u)) / u in (0, 1]. Written as a power of u, the loss has the
    # derivative 0 at u = 0; the derivative of (1 - p)^γ is infinite there for γ < 1 and would give 0 · inf.
    small, large = entropy < 1e-4, entropy > CERTAIN
    kept = entropy.masked_fill(small | large, 1)
    shape = torch.where(small, 1 - entropy / 2, -torch.expm1(-kept) / kept)
    focal = entropy.masked_fill(large, 1) ** (1 + gamma) * shape**gamma
    return torch.where(large, entropy, focal)


def generalized(rows: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """``(1 - q_y^γ) / γ``."""
    return -torch.expm1(gamma * log_softmax(rows).gather(1, labels)) / gamma


def ldam(rows: Tensor, labels: Tensor, margins: Tensor, scale: float) -> Tensor:
    """``-log softmax(λ (s - m_y δ_y))_y``."""
    against = _log_odds_against(rows, labels, scale)
    return -logsigmoid(-against - scale * per_label(margins, labels, rows))


def _log_odds_against(rows: Tensor, labels: Tensor, scale: float) -> Tensor:
    """``log Σ_{j≠c} exp(λ s_j) - λ s_c`` for the labels c, accurate even where ``p_c`` rounds to 1.

    Only the class with the largest score can have more than half of the sum. So only for that class does subtracting
    its own term lose accuracy, and the sum over the others is computed separately.
    """
    largest = rows.detach().argmax(1, keepdim=True)
    rows = scale * (rows - rows.detach().gather(1, largest))
    rest = log_sum_without(rows, largest)
    total = rows.logsumexp(1, keepdim=True)
    own = rows.gather(1, labels)
    first = labels == largest
    share = (own - total).masked_fill(first, -torch.inf).exp()
    return with_nan_where_invalid(torch.where(first, rest, total + torch.log1p(-share)) - own, total)


def adjusted(rows: Tensor, labels: Tensor, class_counts: Tensor, tau: float, gamma: float = 0.0) -> Tensor:
    """``-log softmax((n / max n)^γ s + τ log(n / Σ n))_y``."""
    logs = class_counts.to(rows.dtype).log()
    if gamma:
        rows = rows * torch.exp(gamma * (logs - logs.amax()))
    return cross_entropy(rows + tau * logs.log_softmax(0), labels)
