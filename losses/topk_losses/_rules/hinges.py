"""Hinges on the K-th largest score, in torch: each takes rows ``(M, L)`` and labels ``(M, C)`` to losses ``(M, C)``."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._core.shapes import per_label
from topk_losses._rows.invalid import with_nan_where_invalid
from topk_losses._rows.places import among
from topk_losses._rows.selection import largest

__all__ = ["calibrated", "convex", "on_the_others"]


def on_the_others(rows: Tensor, labels: Tensor, k: int, margin: float | Tensor) -> Tensor:
    """Top-K hinge: ``(α + o_[K] - s_y)_+`` with ``o_[K]`` the K-th largest score of the other classes."""
    top = largest(rows, k + 1)
    # If the label is among the K best, the K-th largest of the others is the (K+1)-th of all.
    others = torch.where(among(top.indices[:, :k], labels, rows), top.values[:, k:], top.values[:, k - 1 : k])
    violation = others - rows.gather(1, labels) + per_label(margin, labels, rows)
    return with_nan_where_invalid(violation, top.values).relu()


def convex(rows: Tensor, labels: Tensor, k: int, margin: float | Tensor) -> Tensor:
    """Convex top-K hinge: ``(Σ_{i<K} d_i + (d_K)_+)_+ / K`` with ``d_i = o_[i] + α - s_y``.

    ``o_[i]`` is the i-th largest score of the other classes. The K largest of ``o_[1] + α, o_[2] + α, …`` and s_y are
    the first K - 1 of these, and the larger of ``o_[K] + α`` and s_y.
    """
    top = largest(rows, k + 1)
    # Relative to the largest score: sums of scores with a large common offset would lose low-order digits.
    centre = top.values[:, :1].detach()
    first, own = top.values - centre, rows.gather(1, labels) - centre
    alpha = per_label(margin, labels, rows)
    # A label among the K - 1 best adds s_y - s_y = 0 to the sum over the K best.
    total = torch.where(
        among(top.indices[:, : k - 1], labels, rows),
        first[:, :k].sum(1, keepdim=True) - k * own,
        first[:, : k - 1].sum(1, keepdim=True) - (k - 1) * own,
    )
    last = torch.where(among(top.indices[:, :k], labels, rows), first[:, k:], first[:, k - 1 : k])
    violation = total + (k - 1) * alpha + (last - own + alpha).relu()
    # Of fewer than K other classes none keeps the label out of the top K.
    violation = violation.masked_fill((last.detach() == -torch.inf) & (centre < torch.inf), 0)
    return with_nan_where_invalid(violation, top.values).relu() / k


def calibrated(rows: Tensor, labels: Tensor, k: int, margin: float | Tensor) -> Tensor:
    """Calibrated top-K hinge: ``(α + s_[K+1] - s_y)_+``."""
    top = largest(rows, k + 1).values
    violation = top[:, k:] - rows.gather(1, labels) + per_label(margin, labels, rows)
    return with_nan_where_invalid(violation, top).relu()
