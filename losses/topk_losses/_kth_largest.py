"""The k-th largest of few values, for many columns at once."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["kth_distinct", "kth_largest"]


def kth_largest(values: Tensor, k: int) -> Tensor:
    """The k-th largest of each column, ``(M, C)`` to ``(C,)``; not for autograd.

    Value after value is inserted into a sorted list of the k largest, or of the M - k + 1 smallest if that is
    shorter, for all columns together: two operations per value and place of the list, on whole columns.
    """
    count = values.shape[0]
    upper, lower, length = torch.maximum, torch.minimum, k
    if count - k + 1 < k:
        upper, lower, length = lower, upper, count - k + 1
    ordered: list[Tensor] = []
    spare = torch.empty_like(values[0])
    for value in values.unbind(0):
        sinking = value.clone()
        for place, present in enumerate(ordered):
            upper(present, sinking, out=spare)
            lower(present, sinking, out=sinking)
            ordered[place], spare = spare, present
        if len(ordered) < length:
            ordered.append(sinking)
    return ordered[-1]


def kth_distinct(values: Tensor, classes: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Value and class ``(R,)`` of the k-th best class of entries ``(R, P)``, each class counting once, with its best.

    Where equal classes leave fewer than k among the best k + 2 entries, the value is -inf.
    """
    best, places = values.topk(min(k + 2, values.shape[1]))
    names = classes.gather(1, places)
    again = torch.zeros_like(names, dtype=torch.bool)
    for distance in range(1, names.shape[1]):
        again[:, distance:] |= names[:, distance:] == names[:, :-distance]
    earlier = ((~again).cumsum(1) < k).sum(1, keepdim=True)
    missing = earlier == names.shape[1]
    earlier = earlier.clamp_(max=names.shape[1] - 1)
    found = best.gather(1, earlier).masked_fill_(missing, -torch.inf)
    return found.squeeze(1), names.gather(1, earlier).squeeze(1)
