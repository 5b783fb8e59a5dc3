"""Rows that contain NaN or +inf, and sums that leave out some classes.

For every loss and backend, the loss and the gradient of such a row are NaN, as in torch's cross-entropy. Half precision
overflows to +inf, and a gradient scaler has to notice it.
"""

from __future__ import annotations

import math
import sys

import torch
from torch import Tensor

from topk_losses._core.checks import all_within

__all__ = ["log_sum_without", "with_nan", "with_nan_where_invalid"]


def with_nan(values: Tensor, invalid: Tensor) -> Tensor:
    """The values ``(M, C)``, with NaN as value and gradient in the invalid rows ``(M, 1)``.

    Call it before a hinge: the gradient of the hinge itself is 0 or 1 and would not pass NaN on.
    """
    return values * torch.where(invalid, torch.nan, 1.0).to(values.dtype)


def with_nan_where_invalid(values: Tensor, top: Tensor) -> Tensor:
    """:func:`with_nan` for rows that contain NaN or +inf; ``top`` ``(M, k)`` starts with the largest score of each row.

    NaN is sorted as the largest score, so the first column shows both.
    """
    largest = top.detach()[:, :1]
    if all_within(largest, -math.inf, sys.float_info.max):
        return values
    return with_nan(values, ~(largest < torch.inf))


def log_sum_without(rows: Tensor, indices: Tensor) -> Tensor:
    """``log Σ exp(s_j)`` over all classes except those in ``indices``, ``(M, 1)``.

    If no class is left, it is a very low finite number, because logsumexp has no gradient at -inf.
    """
    return rows.scatter(1, indices, -torch.finfo(rows.dtype).max / 4).logsumexp(1, keepdim=True)
