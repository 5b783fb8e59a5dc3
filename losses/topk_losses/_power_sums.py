"""Elementary symmetric polynomials of many comparable values from a few power sums.

With ``p_i = Σ_j e_j^i`` Newton's identities ``m σ_m = Σ_i (-1)^(i-1) p_i σ_{m-i}`` give σ_1 … σ_K in one pass over
the values per power, and ``∂σ_K/∂e_j`` is a polynomial in e_j whose coefficients depend on the row alone. The signs
alternate, so it has to be shown when nothing cancels. Let all values be at most a (here a = 1), and let

    κ = a σ_{K-1} / σ_K        (ratios σ_{m-1} / σ_m grow with m by Newton's inequality, so κ bounds them all).

* Sensitivity: as ``Σ σ_m t^m = exp(Σ (-1)^(i-1) p_i t^i / i)``, a relative error δ of p_i moves log σ_K by
  ``δ p_i σ_{K-i} / (i σ_K) <= δ p_1 κ^(i-1) σ_{K-1} / (i σ_K)``.
* ``K σ_K = Σ_j e_j σ_{K-1}(e_{\\j}) >= Σ_j e_j (σ_{K-1} - e_j σ_{K-2}) >= p_1 σ_{K-1} (1 - κ)``, so that
  ``u = p_1 σ_{K-1} / σ_K <= K / (1 - κ)``.

With κ <= 1/2 all errors of the power sums together thus move log σ_K by at most ``2.8 K δ``, and sums in float32 are
good enough; what the power sums from the (r+1)-th on contribute is at most ``u κ^r / ((r + 1) (1 - κ))``, so that a
few of them suffice when κ is small. The terms of the gradient fall by the factor κ too. Values that are not many or
not comparable (κ > 1/2) need their largest split off first: ``_leading.py``. The proof stays the same there, with
σ the polynomials of all values and p_i the sums over those not split off.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["enough_powers", "horner", "newton", "power_sums", "to_unit"]


def enough_powers(k: int, kappa: float, mass: float, tolerance: float) -> int:
    """The least r for which the power sums beyond the r-th move ``log σ_K`` by less than the tolerance."""
    powers = 1
    while powers < k and mass * kappa**powers > tolerance * (powers + 1) * (1 - kappa):
        powers += 1
    return powers


def power_sums(values: Tensor, first: Tensor, powers: int) -> Tensor:
    """``p_1 … p_r`` of values ``(N, L)`` in float64, ``(r, N)``; p_1 is given."""
    sums = [first]
    power = values
    for _ in range(1, powers):
        # One buffer beside the values, overwritten, so that both stay in the cache; autograd needs them all.
        power = power * values if power is values or values.requires_grad else power.mul_(values)
        sums.append(power.sum(1))
    return torch.stack(sums).to(torch.float64)


def to_unit(sums: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Power sums of the values divided by ``v = max(p_1 / K, 1)``, and the factors ``v^-1 … v^-r`` ``(r, N)``.

    In this unit ``σ_m <= K^m / m! <= e^K`` whatever the number of values: nothing overflows.
    """
    inverse = (k / sums[0].detach()).clamp(max=1)
    factors = inverse.expand(sums.shape[0], -1).cumprod(0)
    return sums * factors, factors


def newton(sums: Tensor, k: int) -> Tensor:
    """σ_0 … σ_K ``(K + 1, N)`` from the first power sums ``(r, N)``; those beyond the r-th count as 0."""
    powers = sums.shape[0]
    signed = (
        sums
        * torch.tensor([(-1.0) ** i for i in range(powers)], dtype=sums.dtype, device=sums.device)[:, None]
    )
    latest_last = signed.flip(0)
    polynomials = [torch.ones_like(sums[0]), sums[0]]
    for m in range(2, k + 1):
        terms = min(m, powers)
        table = torch.stack(polynomials[m - terms :])
        polynomials.append((latest_last[powers - terms :] * table).sum(0) / m)
    return torch.stack(polynomials).clamp(min=0)


def horner(values: Tensor, coefficients: Tensor) -> Tensor:
    """``Σ_i c_i e^i`` for i = 1 … r: values ``(N, L)``, coefficients ``(N, r)``."""
    columns = coefficients.unsqueeze(-1).unbind(1)
    if len(columns) == 1:
        return values * columns[0]
    total = torch.addcmul(columns[-2], values, columns[-1])
    for column in columns[-3::-1]:
        torch.addcmul(column, total, values, out=total)
    return total.mul_(values)
