"""Elementary symmetric polynomials of a few values of any range, by positive recursions without logarithms.

Let ``v_1 >= v_2 >= … >= v_M`` be the scores split off, in units of the temperature, and ``e_j = exp(v_j)``.
Divided by its largest product, ``Ê_m = σ_m / Π_{l<=m} e_l`` lies in ``[1, C(M, m)]`` whatever the range of the scores.
Adding the values in descending order updates it by

    Ê_m ← Ê_m + d_jm Ê_{m-1},    d_jm = exp(v_j - v_m) <= 1    (j >= m; nothing for j < m).

Every term is positive, so nothing cancels. Every factor is at most 1, so nothing overflows, and a term that underflows
is negligible against the 1 to which it is added. The adjoint of the recursion runs backwards and is positive as well.
With the same factors it gives each value's inclusion probability ``π_j = Σ_m d_jm Ê_{m-1}^(j-1) A_m^(j) / Ê_K``, whose
m-th term is the probability that j is the m-th largest of the random subset.

The values that are not split off (the *rest*) enter through their own polynomials R_m, in units of the smallest
value split off, as the start of the adjoint recursion. If M >= 3K, then ``a σ_{K-1} / σ_K <= K / (M - K + 1) < 1/2``
for the largest value a of the rest, since all M values are at least a. ``symmetric.py`` requires this bound.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["adjoint", "prefixes", "ratios", "stacked_prefixes", "totals", "weights"]

LEAST_EXPONENT = -1000  # its power of two is negligible and still a normal number
LOG2E = math.log2(math.e)  # exp2 is several times faster than exp on CPUs


def ratios(leading: Tensor, start: int, stop: int, k: int, scale: float) -> Tensor:
    """``d_jm`` for j in ``[start, stop)`` and m in ``[0, k)``, counted from 0: ``(J, K, N)`` from ``(M, N)``."""
    # Bounded from below, because exp2 is slow where its result is denormal. The bound's power is then subtracted, so
    # that masked classes contribute exactly 0.
    gaps = ((leading[start:stop, None] - leading.detach()[None, :k]) * (scale * LOG2E)).clamp(
        min=LEAST_EXPONENT
    )
    if start < k:
        first = torch.arange(start, min(stop, k), device=leading.device)
        early = torch.arange(k, device=leading.device) > first[:, None]
        early = torch.cat([early, early.new_zeros(stop - start - len(first), k)])
        gaps = gaps.masked_fill(early.unsqueeze(-1), LEAST_EXPONENT)
    return gaps.exp2() - 2.0**LEAST_EXPONENT


def prefixes(tables: Tensor, factors: Tensor, start: int) -> None:
    """Write Ê after each of the values from ``start`` on into tables ``(M + 1, K + 1, N)``; not for autograd."""
    lower, upper = tables[start:, :-1].unbind(0), tables[start:, 1:].unbind(0)
    for j, factor in enumerate(factors.unbind(0)):
        torch.addcmul(upper[j], factor, lower[j], out=upper[j + 1])


def stacked_prefixes(factors: Tensor) -> Tensor:
    """The tables of :func:`prefixes` for all values, in operations that autograd differentiates."""
    table = torch.cat([torch.ones_like(factors[0, :1]), torch.zeros_like(factors[0])])
    tables = [table]
    for factor in factors.unbind(0):
        table = torch.cat([table[:1], torch.addcmul(table[1:], factor, table[:-1])])
        tables.append(table)
    return torch.stack(tables)


def weights(leading: Tensor, k: int, scale: float) -> Tensor:
    """``Π_{m < l <= K'} a / e_l`` for K' = K and K - 1 and m = 0 … K, with a the last value: ``(2, K + 1, N)``."""
    gaps = (leading[:k] - leading[-1]).detach() * scale
    logs = torch.cat([torch.zeros_like(gaps[:1]), gaps.cumsum(0)])
    factors = torch.stack([logs - logs[k], logs - logs[k - 1]]).clamp(min=-690, max=0).exp()
    valid = torch.ones(2, k + 1, 1, dtype=factors.dtype, device=factors.device)
    valid[1, k] = 0
    return factors * valid


def totals(weight: Tensor, rest: Tensor | None) -> Tensor:
    """The start A of the adjoint recursion ``(2, K + 1, N)``: ``Σ_m A_m Ê_m`` is σ_K and σ_{K-1} of all values.

    ``rest`` contains R_0 … R_K ``(K + 1, N)``, or is None if the rest is negligible.
    """
    k = weight.shape[1] - 1
    if rest is None:
        alone = torch.zeros(2, k + 1, 1, dtype=weight.dtype, device=weight.device)
        alone[0, k] = alone[1, k - 1] = 1
        return alone.expand_as(weight).contiguous()
    backwards = rest.flip(0)
    return weight * torch.stack([backwards, torch.cat([backwards[1:], backwards[:1]])])


def adjoint(start: Tensor, factors: list[Tensor], tables: Tensor) -> Tensor:
    """The inclusion probability of each value times σ_K, and times σ_{K-1}, ``(2, M, N)``; overwrites ``start``."""
    upper, lower = start[:, 1:], start[:, :-1]
    steps = [factor for block in factors for factor in block.unbind(0)]
    k, samples = steps[0].shape
    flows = start.new_empty(len(steps), 2, k, samples)
    for flow, factor in zip(reversed(flows.unbind(0)), reversed(steps), strict=True):
        torch.mul(upper, factor, out=flow)
        lower.add_(flow)
    return (flows * tables[: len(steps), None, :-1]).sum(2).transpose(0, 1)
