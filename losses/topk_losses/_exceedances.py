r"""Few random numbers for the k-th largest of many Gaussians: only what exceeds a threshold is drawn.

Let ``X_i = x_i + Z_i`` with independent standard normal Z_i, Φ their distribution function, u any threshold and

    ν_i(t) = -log Φ(t - x_i),    so that    P(X_i <= t) = exp(-ν_i(t)).

*Points.* Give class i a Poisson process of points on ``(u, ∞)`` with on average ν_i(t) of them above t, independent
of the other classes. No point of class i lies above t >= u with probability ``exp(-ν_i(t)) = P(X_i <= t)``: its
highest point has the distribution of X_i where that exceeds u, and it has none exactly as often as X_i does not.
So the highest points of the classes have, jointly, the distribution of ``{X_i : X_i > u}``. Poisson processes are
superposed by drawing their total number and then, for each point, its class i with probability ``ν_i(u) / Σν(u)``
and its height t from ``ν_i(t) = U ν_i(u)``, with U uniform on (0, 1). A class's lower points are discarded.

*Thinning.* ν_i grows with x_i. Where only ``x_i <= y`` is known of some classes, points are proposed at the rate of
y for every one of them, and kept with probability ``ν_i(u) / ν_y(u)``: what is kept is the process above.

*Completion.* Where fewer than k of the classes exceed u, the others are, given this, independent normals cut off at
u. They are drawn then, from ``Φ(X_i - x_i) = U Φ(u - x_i)``.

Every step keeps the distribution, so that the k-th largest and its class have jointly that of the full draw: the
total-variation distance is 0 in exact arithmetic, for any u; u and the choice of the classes that are drawn outright
decide the cost alone. What arithmetic adds: probabilities below 2^-53 are cut off, and the scores are rounded as
in any sum with noise; both stay below 1e-6 for a draw in total variation, by the union bound over its classes'
cut-off ``2^-53 L`` and over the tables' sums, which are float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Points", "complete", "heights", "place_points", "rates"]

ROOT = math.sqrt(2)
BELOW_ONE = 1 - 2.0**-53


class Points(NamedTuple):
    """Points of the draws, those of a draw one after another."""

    owner: Tensor
    """The draw of each point ``(E,)``, ascending."""
    cell: Tensor
    """The place of its class in the flattened table of rates ``(E,)``."""


def rates(gaps: Tensor) -> Tensor:
    """``ν = -log Φ(u - x)`` of the gaps ``u - x``; the gaps are overwritten."""
    exceeding = gaps.mul_(1 / ROOT).erfc_()
    return exceeding.mul_(-0.5).log1p_().neg_()


def place_points(table: Tensor, samples: int, generator: torch.Generator | None) -> Points:
    """The points of ``samples`` draws for each row of a table of rates ``(N, C)``."""
    ends = table.flatten().cumsum(0, dtype=torch.float64)
    last = ends[table.shape[1] - 1 :: table.shape[1]]
    first = torch.cat([torch.zeros_like(last[:1]), last[:-1]])
    totals = last - first
    expected = totals.float().repeat_interleave(samples)
    counts = torch.poisson(expected, generator=generator).to(torch.int64)
    owner = torch.arange(counts.numel()).repeat_interleave(counts)
    row = owner // samples
    wanted = torch.rand(len(owner), generator=generator, dtype=torch.float64)
    cell = torch.searchsorted(ends, wanted.mul_(totals[row]).add_(first[row]), right=True)
    start = row * table.shape[1]
    return Points(owner, torch.minimum(torch.maximum(cell, start), start + table.shape[1] - 1))


def heights(rate: Tensor, generator: torch.Generator | None) -> Tensor:
    """``t - x`` of points whose classes have the rates ν(u) ``(E,)``, in float64."""
    uniform = 1 - torch.rand(len(rate), generator=generator, dtype=torch.float64)
    exceeding = torch.expm1(-rate * uniform).neg_()
    return exceeding.mul_(-2).add_(1).clamp_(max=BELOW_ONE).erfinv_().mul_(ROOT)


def complete(x: Tensor, threshold: Tensor, generator: torch.Generator | None) -> Tensor:
    """Normals around x ``(R, L)`` that do not exceed the threshold ``(R, 1)``."""
    below = torch.special.ndtr((threshold - x).double())
    uniform = torch.rand(x.shape, generator=generator, dtype=torch.float64)
    noise = below.mul_(uniform).mul_(2).sub_(1).clamp_(-BELOW_ONE, BELOW_ONE).erfinv_().mul_(ROOT)
    return torch.minimum(x + noise.to(x.dtype), threshold)
