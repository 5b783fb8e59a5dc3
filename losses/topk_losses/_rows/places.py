"""The ranks of labels among the best classes, by class index, so that equal scores have different ranks."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["among", "others_of", "places_among"]


def among(places: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """Whether each label ``(M, C)`` is one of the row's classes ``places`` ``(M, K)``."""
    return torch.zeros_like(rows, dtype=torch.bool).scatter(1, places, True).gather(1, labels)


def places_among(ahead: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """The rank of each label ``(M, C)`` among the row's best classes ``ahead`` ``(M, K)``, from 0; K if not there."""
    k = ahead.shape[1]
    if labels.shape[1] == 1:
        return ((ahead == labels).cumsum(1) == 0).sum(1, keepdim=True)
    ranks = torch.arange(k, device=rows.device).expand_as(ahead)
    return torch.full_like(rows, k, dtype=torch.int64).scatter(1, ahead, ranks).gather(1, labels)


def others_of(top: Tensor, places: Tensor) -> Tensor:
    """The n - 1 largest of the other scores ``(M, C, n - 1)`` from the n largest of all, descending ``(M, n)``."""
    first = torch.arange(top.shape[1] - 1, device=top.device) < places.unsqueeze(2)
    return torch.where(first, top[:, None, :-1], top[:, None, 1:])
