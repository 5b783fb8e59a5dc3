"""Losses against wrong labels, in torch: each takes rows ``(M, L)`` and labels ``(M, C)`` to losses ``(M, C)``.

All but the clipped scores are functions of ``log p = log softmax(s)``. Masked classes have ``log p = -inf`` and are
left out of sums over the classes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from topk_losses._core.checks import FINITE, all_within
from topk_losses._core.shapes import log_softmax

__all__ = [
    "FORMS",
    "LOG_ZERO",
    "PASSIVE",
    "active_passive",
    "asymmetric",
    "clipped",
    "smoothed",
    "smoothed_directly",
    "symmetric",
]

LOG_ZERO = math.log(1e-4)
"""What stands for log 0 in reverse cross-entropy, as in the code of its authors."""

FLOOR = math.log(1e-7)
"""The least log p that the negative losses tell apart, as in the code of their authors."""


def _log_chances(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """``log p`` of all classes and of the labels."""
    log_p = log_softmax(rows)
    return log_p, log_p.gather(1, labels)


def smoothed(rows: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """``-(1 - ε) log p_y - ε mean_j log p_j``."""
    log_p, own = _log_chances(rows, labels)
    masked = rows.detach() == -torch.inf
    mean = log_p.masked_fill(masked, 0).sum(1, keepdim=True) / (~masked).sum(1, keepdim=True)
    return -(1 - epsilon) * own - epsilon * mean


def smoothed_directly(rows: Tensor, target: Tensor, epsilon: float, **shared: Any) -> Tensor:
    """:func:`smoothed` without masked classes, for labels or probabilities, by torch's kernels."""
    if not target.is_floating_point():
        return torch.nn.functional.cross_entropy(rows, target, label_smoothing=epsilon, **shared)
    share = target.sum(1, keepdim=True) * (epsilon / target.shape[1])
    return torch.nn.functional.cross_entropy(rows, torch.add(share, target, alpha=1 - epsilon), **shared)


def _error(own: Tensor, factor: float) -> Tensor:
    """``1 - p_y``, times a factor."""
    return torch.expm1(own) * -factor


def symmetric(rows: Tensor, labels: Tensor, alpha: float, beta: float) -> Tensor:
    """``α (-log p_y) + β (-A) (1 - p_y)`` with ``A = log 1e-4``."""
    own = _log_chances(rows, labels)[1]
    return -alpha * own - beta * LOG_ZERO * _error(own, 1.0)


def active_passive(rows: Tensor, labels: Tensor, alpha: float, beta: float, passive: str) -> Tensor:
    """``α log p_y / Σ_j log p_j`` and β times the passive loss."""
    log_p, own = _log_chances(rows, labels)
    return torch.add(PASSIVE[passive](log_p, own, beta), _normalised(log_p, own), alpha=alpha)


def _normalised(log_p: Tensor, own: Tensor) -> Tensor:
    """``log p_y / Σ_j log p_j``; 0 where a single class is left, and for a masked label, whose loss is set later."""
    total = log_p.sum(1, keepdim=True)
    if all_within(total, -sys.float_info.max, -sys.float_info.min):
        return own / total
    total = log_p.masked_fill(log_p.detach() == -torch.inf, 0).sum(1, keepdim=True)
    # The total would get a gradient of 0 · inf from a masked label that counts for nothing.
    return own.masked_fill(own.detach() == -torch.inf, 0) / total.masked_fill(total == 0, 1)


def _negative(log_p: Tensor, own: Tensor, factor: float) -> Tensor:
    """``1 - (log p_y - F) / Σ_j (log p_j - F)``, with every log p at least F, times a factor."""
    heights = log_p.clamp(min=FLOOR) - FLOOR
    return factor * (1 - (own.clamp(min=FLOOR) - FLOOR) / heights.sum(1, keepdim=True))


PASSIVE: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "mae": lambda _, own, factor: _error(own, factor),
    "rce": lambda _, own, factor: _error(own, -LOG_ZERO * factor),
    "nnce": _negative,
}
"""The passive losses by name, as functions of log p, of the label's and of the factor before them."""


def asymmetric(
    rows: Tensor, labels: Tensor, form: str, a: float, q: float, alpha: float, beta: float
) -> Tensor:
    """``α log p_y / Σ_j log p_j`` and β times an asymmetric loss of p_y."""
    log_p, own = _log_chances(rows, labels)
    losses = FORMS[form](own, a, q, beta)
    return torch.add(losses, _normalised(log_p, own), alpha=alpha) if alpha else losses


def _agce(own: Tensor, a: float, q: float, factor: float) -> Tensor:
    """``((a + 1)^q - (a + p)^q) / q``, without cancellation where p is close to 1, times a factor."""
    ratio = torch.log1p(torch.expm1(own) / (a + 1))
    return torch.expm1(q * ratio) * (-factor * (a + 1) ** q / q)


def _aul(own: Tensor, a: float, q: float, factor: float) -> Tensor:
    """``((a - p)^q - (a - 1)^q) / q``, without cancellation where p is close to 1, times a factor."""
    ratio = torch.log1p(torch.expm1(own) / (1 - a))
    return torch.expm1(q * ratio) * (factor * (a - 1) ** q / q)


FORMS: dict[str, Callable[[Tensor, float, float, float], Tensor]] = {
    "agce": _agce,
    "aul": _aul,
    "ael": lambda own, a, _, factor: factor * torch.exp(-own.exp() / a),
}
"""The asymmetric losses by name, as functions of log p_y, a, q and the factor before them."""


def clipped(rows: Tensor, limit: float) -> Tensor:
    """The scores, shortened to a Euclidean norm of at most the limit."""
    norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    if all_within(norm, *FINITE):
        return rows * (limit / norm.clamp(min=limit))
    masked = rows.detach() == -torch.inf
    scores = rows.masked_fill(masked, 0)
    # In units of the largest, so that no square overflows.
    size = scores.detach().abs().amax(1, keepdim=True).clamp(min=1)
    norm = size * torch.linalg.vector_norm(scores / size, dim=1, keepdim=True)
    return (scores * (limit / norm.clamp(min=limit))).masked_fill(masked, -torch.inf)
