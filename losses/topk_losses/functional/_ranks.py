"""What the losses that sort the scores have in common."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["among", "invalid_rows_to_nan", "log_sum_without"]


def among(indices: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """Whether each label ``(M, C)`` is one of the row's classes ``indices`` ``(M, K)``.

    Places are compared, not scores: of two equal scores only one is among the K best.
    """
    inside = torch.zeros_like(rows, dtype=torch.bool).scatter(1, indices, True)
    return inside.gather(1, labels)


def invalid_rows_to_nan(losses: Tensor, top: Tensor) -> Tensor:
    """NaN for the rows that hold NaN or +inf, as in cross-entropy; ``top`` has the largest scores first.

    Sorting takes NaN for the largest of all, so that one look at the first finds both. Without it a score
    that has overflown would pass as an ordinary competitor, or as a perfect target.
    """
    return losses.masked_fill(~(top.detach()[:, :1] < torch.inf), torch.nan)


def log_sum_without(rows: Tensor, indices: Tensor) -> Tensor:
    """``log Σ exp(s_j)`` over all classes but those of ``indices``, ``(M, 1)``.

    Without any class left it is very small, not -inf, of which logsumexp has no gradient.
    """
    return rows.scatter(1, indices, -torch.finfo(rows.dtype).max / 4).logsumexp(1, keepdim=True)
