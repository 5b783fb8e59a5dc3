"""Slow and obvious references of the operators, for one row of scores ``(L,)`` in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["expected_topk", "lapsum_topk", "noised_topk", "soft_topk"]


def noised_topk(s: Tensor, k: int, epsilon: float, noise: Tensor) -> Tensor:
    """The mean over draws of the k-th largest, as the sum of the k largest minus the sum of the k - 1 largest."""
    values = []
    for draw in noise.double():
        ordered = (s + epsilon * draw).sort(descending=True).values
        values.append(ordered[:k].sum() - ordered[: k - 1].sum())
    return torch.stack(values).mean()


def lapsum_topk(s: Tensor, k: int, temperature: float = 1.0) -> Tensor:
    """``F((s - b) / T)`` with sum k < L; b by bisection, then one Newton step for autograd to differentiate."""
    low, high = s.detach().min() - 50 * temperature, s.detach().max() + 50 * temperature
    for _ in range(60):
        b = (low + high) / 2
        low, high = (b, high) if _laplace((s.detach() - b) / temperature).sum() > k else (low, b)
    density = (-((s.detach() - b) / temperature).abs()).exp().sum() / (2 * temperature)
    b = b + (_laplace((s - b) / temperature).sum() - k) / density
    return _laplace((s - b) / temperature)


def _laplace(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1 - (-x.abs()).exp() / 2, (-x.abs()).exp() / 2)


def soft_topk(s: Tensor, k: int, tau: float = 1.0, shape: str = "logistic") -> Tensor:
    """``F((s - θ) / τ)`` with sum k < L; θ by bisection, then three Newton steps for autograd to differentiate."""
    x, f = s / tau, _SHAPES[shape]
    if shape == "midpoint":
        ordered = x.sort(descending=True).values
        return f(x - (ordered[k - 1] + ordered[k]) / 2)
    low, high = x.detach().min() - 50, x.detach().max() + 50
    for _ in range(100):
        level = (low + high) / 2
        low, high = (level, high) if f(x.detach() - level).sum() > k else (low, level)
    for _ in range(3):
        slope = torch.func.jvp(f, (x - level,), (torch.ones_like(x),))[1].sum()
        level = level + (f(x - level).sum() - k) / slope if slope > 0 else level
    return f(x - level)


_SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": torch.sigmoid,
    "laplace": _laplace,
    "gaussian": lambda x: torch.erfc(-x / math.sqrt(2)) / 2,
    "clip": lambda x: x.clamp(0, 1),
    "power": lambda x: x.clamp(0, 1) ** 3,
    "midpoint": torch.sigmoid,
}


def expected_topk(s: Tensor, k: int, epsilon: float) -> Tensor:
    """The expected k-th largest of ``N(s_i, ε²)``, by the trapezoid rule with steps of at most ``ε / 2√L``.

    The grid reaches 9 ε beyond all scores. With steps h the error is about ``exp(-2 (πσ/h)²)``, σ the standard
    deviation of the k-th largest, which is smallest for L equal scores and k in the middle: ``1.25 ε / √L``.
    """
    low, high = s.min().item() - 9 * epsilon, s.max().item() + 9 * epsilon
    nodes = math.ceil(2 * math.sqrt(len(s)) * (high - low) / epsilon) + 1
    t = torch.linspace(low, high, nodes, dtype=torch.float64)
    fewer = torch.zeros(k, nodes, dtype=torch.float64)  # P(exactly m classes exceed t) for m < k
    fewer[0] = 1
    for score in s:
        exceeds = 0.5 * torch.erfc((t - score) / (epsilon * math.sqrt(2)))
        one_more = torch.cat([torch.zeros_like(fewer[:1]), fewer[:-1]])
        fewer = (1 - exceeds) * fewer + exceeds * one_more
    return t[-1] - torch.trapezoid(fewer.sum(0), t)
