r"""How many of a crowd of independent Gaussians exceed t, by power sums: a few passes over the classes for all k.

Let ``p_i = P(X_i > t)``, ``r_i = p_i / (1 - p_i)``, and e_m the elementary symmetric polynomials of the r_i. The
probability that exactly m of the crowd exceed t is ``e_m Π (1 - p_i)``. Newton's identities give the e_m from the power
sums ``Σ r_i^j`` for j <= m, so p_i is computed once per class and node. The terms of the identities have both signs;
their absolute values add up to the complete symmetric polynomial h_m, and ``h_m Π (1 - p_i)`` is large only if some p_i
are near 1. In that case the 4 k or more classes above the crowd have p at least as large, so it hardly ever happens
that fewer than k of all classes exceed t, and the result is not affected: for k >= 2, p of the crowd's best class is
below 0.99 wherever F > 1e-12. Two or three digits are lost.

Let ``A(m)`` be the probability that exactly m of all classes exceed t. The probability that exactly k - 1 of all
classes except i do follows from polynomial division by ``(1 - p_i) + p_i z``:
``(1 + r_i) Σ_l (-r_i)^l A(k - 1 - l)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["LARGEST_RANK", "Crowd"]

LARGEST_RANK = 16  # the largest k; for larger ones powers leave the range of float32
LARGEST_POWER = 30  # r^(k-1) is bounded by 10 to this power


class Crowd(NamedTuple):
    """Classes below the leading ones, at some nodes."""

    x: Tensor
    """``(R, n)``, descending."""
    nodes: Tensor
    """t, ``(T, n)``."""
    numbers: Sequence[int]
    """The number of classes that can exceed each node."""
    weight: float
    """The number of classes that each one represents."""
    dtype: torch.dtype
    """The dtype of the computations per class."""

    def counts(self, k: int) -> Tensor:
        """The probabilities that exactly m < k exceed each node, ``(k, T, n)``."""
        sums = self.x.new_zeros(k, *self.nodes.shape)
        for j, number in enumerate(self.numbers):
            if number:
                self._look(k, j, number, sums[:, j])
        sums.mul_(self.weight)
        return _symmetric(sums[1:]).mul_(sums[0].exp()).clamp_(min=0)

    def _look(self, k: int, j: int, number: int, sums: Tensor) -> None:
        exceed = self._exceed(k, j, number)[0]
        sums[0] = exceed.neg().log1p_().sum(0)
        if k > 1:
            ratio = exceed.div_(1 - exceed)
            sums[1] = ratio.sum(0)
            power = ratio.clone()
            for m in range(2, k):
                sums[m] = power.mul_(ratio).sum(0)

    def shares(self, total: Tensor) -> Tensor:
        """``Σ_t φ(t - x_i) P(exactly k - 1 of all but i exceed t)``, ``(R, n)``, given A at the nodes ``(k, T, n)``."""
        k = len(total)
        total = total.to(self.dtype)
        result = torch.zeros_like(self.x, dtype=self.dtype)
        for j, number in enumerate(self.numbers):
            if number:
                exceed, distance = self._exceed(k, j, number)
                density = distance.square_().neg_().exp_().mul_(1 / math.sqrt(2 * math.pi))
                stay = 1 - exceed
                ratio = exceed.div_(stay)
                rest = total[0, j].expand_as(ratio)
                for m in range(1, k):
                    rest = torch.addcmul(total[m, j], rest, ratio, value=-1)
                result[:number].add_(density.div_(stay).mul_(rest.clamp_(min=0) if k > 1 else rest))
        return result

    def _exceed(self, k: int, j: int, number: int) -> tuple[Tensor, Tensor]:
        distance = (self.nodes[j] - self.x[:number]).mul_(1 / math.sqrt(2)).to(self.dtype)
        most = 1 / (1 + 10 ** -min(4.0, LARGEST_POWER / max(1, k - 1)))
        return torch.erfc(distance).mul_(0.5).clamp_(max=most), distance


def _symmetric(power_sums: Tensor) -> Tensor:
    """``e_0 ... e_{k-1}`` by Newton's identities, ``(k - 1, ...)`` to ``(k, ...)``."""
    symmetric = [power_sums.new_ones(power_sums.shape[1:])]
    for m in range(1, len(power_sums) + 1):
        terms = [(-1) ** (i - 1) * symmetric[m - i] * power_sums[i - 1] for i in range(1, m + 1)]
        symmetric.append(torch.stack(terms).sum(0) / m)
    return torch.stack(symmetric)
