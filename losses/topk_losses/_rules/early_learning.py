"""Early-learning regularisation, in torch: rows ``(M, L)`` and labels ``(M, C)`` to losses ``(M, C)``."""

from __future__ import annotations

import math

from torch import Tensor

from topk_losses._core.checks import all_within
from topk_losses._core.shapes import log_softmax

__all__ = ["regularized"]

LEAST = 1e-4
"""The least ``1 - <p, t>``: the authors' code keeps probabilities at or below ``1 - 1e-4``."""


def regularized(rows: Tensor, labels: Tensor, memory: Tensor, strength: float) -> Tensor:
    """``-log p_y + λ log(1 - <p, t>)``."""
    log_p, t = log_softmax(rows), memory.to(rows.dtype)
    # 1 - <p, t> = (1 - Σ t) + Σ t (1 - p): sums of terms of one sign, exact where p is close to 1.
    apart = (1 - t.sum(1, keepdim=True)).clamp(min=0) - (t * log_p.expm1()).sum(1, keepdim=True)
    if not all_within(apart, LEAST, math.inf):
        apart = apart.clamp(min=LEAST)
    return strength * apart.log() - log_p.gather(1, labels)
