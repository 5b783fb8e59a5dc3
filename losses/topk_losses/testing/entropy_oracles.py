"""Slow and obvious references of the losses that know no K, see ``oracles.py``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = [
    "active_passive_loss",
    "asymmetric_loss",
    "balanced_softmax",
    "cross_entropy",
    "early_learning",
    "focal",
    "generalized_cross_entropy",
    "label_smoothing",
    "ldam",
    "logit_adjusted",
    "logit_clip",
    "mean_absolute_error",
    "symmetric_cross_entropy",
    "vector_scaling",
]


def cross_entropy(s: Tensor, y: int) -> Tensor:
    """``-log softmax(s)_y``."""
    return -torch.log(s[y].exp() / s.exp().sum())


def focal(s: Tensor, y: int, gamma: float = 2.0) -> Tensor:
    """``(1 - p_y)^γ · (-log p_y)``."""
    return (1 - s.softmax(0)[y]) ** gamma * cross_entropy(s, y)


def generalized_cross_entropy(s: Tensor, y: int, gamma: float = 0.7) -> Tensor:
    """``(1 - q_y^γ) / γ``."""
    return (1 - s.softmax(0)[y] ** gamma) / gamma


def label_smoothing(s: Tensor, y: int, epsilon: float = 0.1) -> Tensor:
    """``-(1 - ε) log p_y - ε/L Σ_j log p_j``."""
    target = torch.full_like(s, epsilon / len(s)) + (1 - epsilon) * (torch.arange(len(s)) == y).to(s.dtype)
    return -(target * s.softmax(0).log()).sum()


def mean_absolute_error(s: Tensor, y: int) -> Tensor:
    """``Σ_j |1[j = y] - p_j| / 2``."""
    return ((torch.arange(len(s)) == y).to(s.dtype) - s.softmax(0)).abs().sum() / 2


def symmetric_cross_entropy(s: Tensor, y: int, alpha: float = 0.1, beta: float = 1.0) -> Tensor:
    """``α CE(p, y) + β CE(y, p)``, with 1e-4 for the label's zeros."""
    zeros = torch.full_like(s, 1e-4).index_fill(0, torch.tensor([y]), 1.0)
    return alpha * cross_entropy(s, y) - beta * (s.softmax(0) * zeros.log()).sum()


def active_passive_loss(
    s: Tensor, y: int, alpha: float = 1.0, beta: float = 1.0, passive: str = "rce"
) -> Tensor:
    """``α CE_y / Σ_j CE_j`` and β times the passive loss."""
    entropies = torch.stack([cross_entropy(s, j) for j in range(len(s))])
    heights = -math.log(1e-7) - entropies.clamp(max=-math.log(1e-7))
    rest = {
        "mae": mean_absolute_error(s, y),
        "rce": symmetric_cross_entropy(s, y, 0.0, 1.0),
        "nnce": 1 - heights[y] / heights.sum(),
    }
    return alpha * entropies[y] / entropies.sum() + beta * rest[passive]


def asymmetric_loss(
    s: Tensor,
    y: int,
    form: str = "agce",
    a: float = 0.6,
    q: float = 0.6,
    alpha: float = 0.0,
    beta: float = 1.0,
) -> Tensor:
    """``α CE_y / Σ_j CE_j`` and β times the asymmetric loss of p_y."""
    p = s.softmax(0)[y]
    forms: dict[str, Tensor] = {"agce": ((a + 1) ** q - (a + p) ** q) / q, "ael": (-p / a).exp()}
    if form == "aul":
        forms["aul"] = ((a - p) ** q - (a - 1) ** q) / q
    return active_passive_loss(s, y, alpha, 0.0) + beta * forms[form]


def logit_clip(s: Tensor, y: int, limit: float = 1.5) -> Tensor:
    """Cross-entropy of ``s · min(1, τ / |s|)``."""
    norm = s.square().sum().sqrt()
    return cross_entropy(s * (limit / norm) if norm > limit else s, y)


def early_learning(s: Tensor, y: int, memory: Tensor, strength: float = 3.0) -> Tensor:
    """``-log p_y + λ log(1 - Σ_j p_j t_j)`` with the sample's own t ``(L,)``."""
    return cross_entropy(s, y) + strength * (1 - (s.softmax(0) * memory).sum()).log()


def ldam(s: Tensor, y: int, margins: Tensor, scale: float = 30.0) -> Tensor:
    """Cross-entropy of ``scale · (s - m_y·onehot(y))``."""
    return (scale * (torch.cat([s[:y], s[y + 1 :]]) - s[y] + margins[y])).exp().sum().log1p()


def balanced_softmax(s: Tensor, y: int, class_counts: Tensor) -> Tensor:
    """Cross-entropy of ``s + log n``."""
    return cross_entropy(s + class_counts.double().log(), y)


def logit_adjusted(s: Tensor, y: int, class_counts: Tensor, tau: float = 1.0) -> Tensor:
    """Cross-entropy of ``s + τ log(n / Σn)``."""
    return cross_entropy(s + tau * (class_counts.double() / class_counts.sum()).log(), y)


def vector_scaling(s: Tensor, y: int, class_counts: Tensor, tau: float = 1.0, gamma: float = 0.3) -> Tensor:
    """Cross-entropy of ``(n / max n)^γ s + τ log(n / Σn)``."""
    n = class_counts.double()
    return cross_entropy((n / n.max()) ** gamma * s + tau * (n / n.sum()).log(), y)
