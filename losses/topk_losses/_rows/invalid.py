"""Rows that hold NaN or +inf, and sums over classes of which some are left out.

One rule holds for every loss and backend: such a row's loss is NaN and so is its gradient, as with torch's
cross-entropy. Half precision overflows to +inf, and a gradient scaler has to see that.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["log_sum_without", "spoilt", "spoilt_where_invalid"]


def spoilt(values: Tensor, invalid: Tensor) -> Tensor:
    """The values ``(M, C)``, with NaN for themselves and for their gradient in rows that are invalid ``(M, 1)``.

    To be called before a hinge, whose gradient is 0 or 1 whatever comes behind it.
    """
    return values * torch.where(invalid, torch.nan, 1.0).to(values.dtype)


def spoilt_where_invalid(values: Tensor, top: Tensor) -> Tensor:
    """:func:`spoilt` for rows that hold NaN or +inf; ``top`` has the largest scores first ``(M, k)``.

    NaN counts as the largest score, so that one look at the first finds both.
    """
    return spoilt(values, ~(top.detach()[:, :1] < torch.inf))


def log_sum_without(rows: Tensor, indices: Tensor) -> Tensor:
    """``log Σ exp(s_j)`` over all classes but those of ``indices``, ``(M, 1)``.

    Without any class left it is very small, not -inf, of which logsumexp has no gradient.
    """
    return rows.scatter(1, indices, -torch.finfo(rows.dtype).max / 4).logsumexp(1, keepdim=True)
