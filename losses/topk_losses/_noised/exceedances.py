r"""Few random numbers for the k-th largest of many noisy scores: only what exceeds a threshold is drawn.

Let ``X_i = x_i + Z_i`` with independent standard normal Z_i, Φ their distribution function, and u any threshold. The
k-th largest of the X_i, and its class, depend on those that exceed u alone if these are at least k. Three steps draw
the set ``{(i, X_i) : X_i > u}``, each without changing its distribution:

*Outright.* Classes with ``x_i >= u - c`` get their noise, and are kept if ``X_i > u``.

*Thinning.* A class with ``x_i < u - d`` exceeds u only if ``Z_i > d``. These cells (class and draw) are a Bernoulli
process with probability ``p = 1 - Φ(d)``. Between one and the next lies a geometric number of cells, ``⌊E/ν⌋`` with E
exponential and ``ν = -log Φ(d)``; ``ω = E - ν ⌊E/ν⌋`` does not depend on that number, since E has no memory, and
``exp(-ω)`` is uniform on ``(Φ(d), 1)``, so that ``Z = Φ⁻¹(exp(-ω))`` is the noise of a cell that is known to exceed d.
One random number gives a place and its noise; those with ``x_i + Z <= u`` are thrown away. The classes from ``u - d``
to ``u - c``, which are few and known, are thinned by themselves with c in place of d. All others are thinned with d in
one go over the cells of all classes, of which those of classes above ``u - d`` are thrown away.

*Completion.* In a draw in which fewer than k classes exceed u, the others are, given this, independent normals cut
off at u, and are drawn as such: ``Φ(X_i - x_i) = U Φ(u - x_i)`` with U uniform on (0, 1). Which draws these are
depends on the exceedances alone, so that nothing drawn before is contradicted.

Hence the k-th largest and its class have jointly the distribution of the full draw whatever u and d are; these decide
about the work alone. What arithmetic with 53 bits adds: U and Φ have steps of 2^-53. Exact numbers can be drawn along
with those of the machine so that the two lead to the same cells, and to noise that differs by rounding, but where U
lies within 2^-53 of a place at which a decision turns: for the gap before a cell, its threshold and the end of the
tail, in either thinning. That makes at most ``6 · 2^-53`` per cell, and ``6 L 2^-53`` in total variation for a draw
over L classes, less than 1e-6 up to 10^9 classes. Adding the noise to a score rounds as it does in the full draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["exceedances", "tail_probability", "truncated_normal"]

BELOW_ONE = 1 - 2.0**-53
AT_ONCE = 2**16  # cells drawn together: what is computed for them stays in the cache


def tail_probability(x: float) -> float:
    """``1 - Φ(x)``."""
    return 0.5 * math.erfc(x / math.sqrt(2))


def exceedances(
    cells: int, threshold: float, generator: torch.Generator | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Those of so many standard normals that exceed a threshold: places (float64, ascending) and values, in parts."""
    probability = tail_probability(threshold)
    rate = -math.log1p(-probability)
    place = -1.0
    while place < cells:
        expected = (cells - place) * probability
        number = int(min(AT_ONCE, expected + 6 * math.sqrt(expected) + 1))
        # 1 - U, as U may be 0.
        uniform = torch.rand(number, generator=generator, dtype=torch.float64)
        level = uniform.neg_().log1p_().neg_()
        gaps = level.div(rate).floor_()
        level.sub_(gaps, alpha=rate)
        places = gaps.add_(1).cumsum_(0).add_(place)
        place = float(places[-1])
        if place >= cells:
            inside = int((places < cells).sum())
            places, level = places[:inside], level[:inside]
        yield places, _quantile(level.neg_().expm1_(), 1)


def _quantile(share: Tensor, top: int) -> Tensor:
    """``Φ⁻¹(top + share)``; the argument is overwritten."""
    return share.mul_(2).add_(2 * top - 1).clamp_(-BELOW_ONE, BELOW_ONE).erfinv_().mul_(math.sqrt(2))


def truncated_normal(upper: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normals that do not exceed ``upper``, in float64."""
    below = torch.special.ndtr(upper.double())
    uniform = torch.rand(upper.shape, generator=generator, dtype=torch.float64)
    return torch.minimum(_quantile(below.mul_(uniform), 0), upper)
