"""The largest scores of many rows, a group of classes at a time."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["largest"]

GROUP = 8


def largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values and classes ``(N, count)`` of the largest scores ``(N, L)``, the first one the largest; not for autograd.

    Each of the ``count`` largest scores is in one of the ``count`` groups with the largest maxima (if one were not,
    those maxima would all be at least as large). NaN counts as the largest of all.
    """
    classes = scores.shape[1]
    groups = classes // GROUP
    if groups < 2 * count:
        values, places = scores.topk(count)
        return values, places
    maxima = scores[:, : GROUP * groups].unflatten(1, (GROUP, groups)).amax(1)
    best = maxima.topk(count, sorted=False).indices
    offsets = torch.arange(0, GROUP * groups, groups, device=scores.device)
    members = (best.unsqueeze(1) + offsets.unsqueeze(1)).flatten(1)
    if classes % GROUP:
        left_over = torch.arange(GROUP * groups, classes, device=scores.device)
        members = torch.cat([members, left_over.expand(scores.shape[0], -1)], 1)
    values, places = scores.gather(1, members).topk(count)
    return values, members.gather(1, places)
