r"""Drawing the k-th largest of many noisy scores with few random numbers: only values above a threshold are drawn.

Let ``X_i = x_i + Z_i`` with independent standard normal Z_i, Φ their distribution function, and u any threshold. If at
least k of the X_i exceed u, the k-th largest and its class depend only on those. Three steps draw the set
``{(i, X_i) : X_i > u}`` with its exact distribution:

*Outright.* Noise is drawn for classes with ``x_i >= u - c``, and they are kept if ``X_i > u``.

*Thinning.* A class with ``x_i < u - d`` exceeds u only if ``Z_i > d``. A cell is one class in one draw; the cells with
``Z_i > d`` are a Bernoulli process with probability ``p = 1 - Φ(d)``. The number of cells between one and the next is
geometric: ``⌊E/ν⌋`` with E exponential and ``ν = -log Φ(d)``. As E is memoryless, ``ω = E - ν ⌊E/ν⌋`` is independent of
that number, and ``exp(-ω)`` is uniform on ``(Φ(d), 1)``. So ``Z = Φ⁻¹(exp(-ω))`` has the distribution of the cell's
noise given that it exceeds d, and a single random number gives the cell and its noise. Cells with ``x_i + Z <= u`` are
discarded. The few classes from ``u - d`` to ``u - c`` are known and thinned separately, with c in place of d. All
others are thinned with d, in one pass over the cells of all classes that discards those of classes above ``u - d``.

*Completion.* In a draw with fewer than k values above u, the remaining values are, given this, independent normal
variables truncated at u, and are drawn as such: ``Φ(X_i - x_i) = U Φ(u - x_i)`` with U uniform on (0, 1). Which draws
need this depends only on the values above u, so it agrees with everything drawn before.

Hence the k-th largest and its class jointly have the distribution of the full draw for any u and d, which only affect
the amount of work. It remains to bound the effect of 53-bit arithmetic. U and Φ have steps of 2^-53. The machine's
numbers can be coupled with exact ones so that both give the same cells, and noise equal up to rounding, unless U is
within 2^-53 of a value at which a decision changes: the gap before a cell, its threshold, or the end of the tail, in
either thinning. The probability of this is at most ``6 · 2^-53`` per cell, so the total variation is at most
``6 L 2^-53`` for a draw over L classes, below 1e-6 up to 10^9 classes. Adding the noise rounds as in the full draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._rows.selection import Groups

__all__ = ["Threshold", "exceedances", "find_threshold", "tail_probability", "truncated_normal"]

BELOW_ONE = 1 - 2.0**-53
AT_ONCE = 2**16  # cells drawn at once, so that intermediate results fit into the cache
DEPTH = 2.8  # default depth of u below the k-th largest score; few draws have a lower k-th largest value
GAP = 3.3  # default gap below the threshold down to which classes are leading; lower ones rarely exceed the threshold
# If more groups than this, or half of a row's groups, have leading classes, searching for a better threshold pays.
CROWDED = 48
SAMPLE = 64  # classes that represent all others in that search
ROUNDS = 3  # steps of Newton's method
NARROWEST, STEP, GAPS = 0.6, 0.2, 16  # the smallest gap tried, the distance between gaps, their number
NORMAL_COST, CELL_COST = 6.0, 14.0  # nanoseconds per class drawn outright, and per cell above the gap


def tail_probability(x: float) -> float:
    """``1 - Φ(x)``."""
    return 0.5 * math.erfc(x / math.sqrt(2))


def exceedances(
    cells: int, threshold: float, generator: torch.Generator | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield in parts which of so many standard normals exceed a threshold (float64, ascending), and their values."""
    probability = tail_probability(threshold)
    rate = -math.log1p(-probability)
    position = -1.0
    while position < cells:
        expected = (cells - position) * probability
        number = int(min(AT_ONCE, expected + 6 * math.sqrt(expected) + 1))
        # 1 - U rather than U, because U may be 0.
        uniform = torch.rand(number, generator=generator, dtype=torch.float64, device="cpu")
        level = uniform.neg_().log1p_().neg_()
        gaps = level.div(rate).floor_()
        level.sub_(gaps, alpha=rate)
        places = gaps.add_(1).cumsum_(0).add_(position)
        position = float(places[-1])
        if position >= cells:
            inside = int((places < cells).sum())
            places, level = places[:inside], level[:inside]
        yield places, _quantile(level.neg_().expm1_(), 1)


def _quantile(share: Tensor, top: int) -> Tensor:
    """``Φ⁻¹(top + share)``; the argument is overwritten."""
    return share.mul_(2).add_(2 * top - 1).clamp_(-BELOW_ONE, BELOW_ONE).erfinv_().mul_(math.sqrt(2))


def truncated_normal(upper: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal variables given that they do not exceed ``upper``, in float64."""
    below = torch.special.ndtr(upper.double())
    uniform = torch.rand(upper.shape, generator=generator, dtype=torch.float64, device="cpu")
    return torch.minimum(_quantile(below.mul_(uniform), 0), upper)


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
