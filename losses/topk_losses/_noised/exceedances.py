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

import torch
from torch import Tensor

__all__ = ["exceedances", "tail_probability", "truncated_normal"]

BELOW_ONE = 1 - 2.0**-53
AT_ONCE = 2**16  # cells drawn at once, so that intermediate results fit into the cache


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
