"""Choosing the threshold of each row from some of its scores, so that few values exceed it.

The choice only affects the time: the distribution of the draws is the same for any threshold (see ``exceedances.py``).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._noised.exceedances import tail_probability
from topk_losses._rows.candidates import Groups

__all__ = ["Threshold", "find_threshold"]

DEPTH = 2.8  # default depth of u below the k-th largest score; few draws have a lower k-th largest value
GAP = 3.3  # default gap below the threshold down to which classes are leading; lower ones rarely exceed the threshold
# If more groups than this, or half of a row's groups, have leading classes, searching for a better threshold pays.
CROWDED = 48
SAMPLE = 64  # classes that represent all others in that search
ROUNDS = 3  # steps of Newton's method
NARROWEST, STEP, GAPS = 0.6, 0.2, 16  # the smallest gap tried, the distance between gaps, their number
NORMAL_COST, CELL_COST = 6.0, 14.0  # nanoseconds per class drawn outright, and per cell above the gap


class Threshold(NamedTuple):
    """The threshold of each row, and which classes are leading."""

    height: Tensor
    """u, in units of ε from the row's centre ``(N,)``."""
    gap: float
    """d: leading classes are those with scores of at least ``u - d``."""
    level: Tensor
    """``u - d`` as a score ``(N,)``."""


def find_threshold(groups: Groups, k: int, epsilon: float) -> Threshold:
    """Thresholds for the k-th largest of each row."""
    level = groups.centre - epsilon * (DEPTH + GAP)
    reaching = (groups.maxima >= level.unsqueeze(1)).sum(1).amax().item()
    if reaching <= min(CROWDED, groups.maxima.shape[1] // 2):
        return Threshold(torch.full_like(level, -DEPTH), GAP, level)
    x = _sample(groups, epsilon)
    height = _height(x, k, groups.members.shape[1])
    gap = _gap(x - height.unsqueeze(1))
    return Threshold(height, gap, groups.centre + epsilon * (height - gap))


def _sample(groups: Groups, epsilon: float) -> Tensor:
    """A sample of the scores, in units of ε from the centre ``(N, S)``; -inf for those at or above the centre."""
    some = groups.members[:, :: max(1, groups.members.shape[1] // SAMPLE)]
    x = (some - groups.centre.unsqueeze(1)).div_(epsilon)
    return x.masked_fill_(x >= 0, -torch.inf)


def _height(x: Tensor, k: int, classes: int) -> Tensor:
    """The u that about ``k + 3 sqrt(k) + 1`` noisy scores are expected to exceed: k at the centre, others as x."""
    wanted = math.log(k + 3 * math.sqrt(k) + 1)
    height = x.new_zeros(len(x))
    for _ in range(ROUNDS):
        gaps = (height.unsqueeze(1) - x).clamp_(max=12)  # above this, exp gives denormals, which are slow
        density = gaps.square().mul_(-0.5).exp_().mean(1).mul_(classes * math.sqrt(2 / math.pi))
        density += k * math.sqrt(2 / math.pi) * height.square().mul(-0.5).exp()
        number = gaps.mul_(1 / math.sqrt(2)).erfc_().mean(1).mul_(classes) + k * torch.erfc(
            height / math.sqrt(2)
        )
        height = height + ((number / 2).log() - wanted).mul_(number / density).nan_to_num_(0.0).clamp_(-2, 2)
    return height.clamp_(min=-DEPTH)


def _gap(x: Tensor) -> float:
    """The gap with the lowest expected cost, for sampled classes in units of ε from the threshold ``(N, S)``."""
    gaps = [NARROWEST + i * STEP for i in range(GAPS)]
    cell = x.neg().sub_(NARROWEST).div_(STEP).ceil_().clamp_(0, GAPS).to(torch.int64)
    leading = cell.flatten().bincount(minlength=GAPS + 1).cumsum(0).tolist()
    costs = [
        NORMAL_COST * number / x.numel() + CELL_COST * tail_probability(gap)
        for number, gap in zip(leading, gaps, strict=False)
    ]
    return gaps[costs.index(min(costs))]
