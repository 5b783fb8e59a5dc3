"""The k-th largest of a few dozen values, for thousands of columns at once."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LONGEST", "kth_largest"]

LONGEST = 16  # the largest k; for larger k, selecting column by column is faster


def kth_largest(values: Tensor, k: int) -> Tensor:
    """Return the k-th largest of each column, ``(R, C)`` to ``(C,)``, for k in ``[1, R]``; not for autograd.

    Every value is inserted into the list of the k largest, for all columns at once. This takes k minima and maxima of
    whole rows for a value, and is several times faster than column by column.
    """
    count, _ = values.shape
    if k > LONGEST:
        return values.t().contiguous().kthvalue(count - k + 1, dim=1).values
    ordered: list[Tensor] = []
    for value in values.contiguous().unbind(0):
        sinking = value
        for position, present in enumerate(ordered):
            ordered[position] = torch.maximum(present, sinking)
            sinking = torch.minimum(present, sinking)
        if len(ordered) < k:
            ordered.append(sinking)
    return ordered[k - 1]
