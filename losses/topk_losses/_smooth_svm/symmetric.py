r"""Elementary symmetric polynomials: of any values by a recursion in log-space, and of many values from power sums.

Of many values of similar size, a few power sums are enough. With ``p_i = Σ_j e_j^i``, Newton's identities
``m σ_m = Σ_i (-1)^(i-1) p_i σ_{m-i}`` give σ_1 … σ_K with one pass over the values per power, and ``∂σ_K/∂e_j`` is a
polynomial in e_j whose coefficients are the same for the whole row. The signs alternate, so cancellation must be
excluded. Let all values be at most a (here a = 1), and let

    κ = a σ_{K-1} / σ_K        (ratios σ_{m-1} / σ_m grow with m by Newton's inequality, so κ bounds them all).

* Sensitivity: as ``Σ σ_m t^m = exp(Σ (-1)^(i-1) p_i t^i / i)``, a relative error δ of p_i moves log σ_K by
  ``δ p_i σ_{K-i} / (i σ_K) <= δ p_1 κ^(i-1) σ_{K-1} / (i σ_K)``.
* ``K σ_K = Σ_j e_j σ_{K-1}(e_{\j}) >= Σ_j e_j (σ_{K-1} - e_j σ_{K-2}) >= p_1 σ_{K-1} (1 - κ)``, so that
  ``u = p_1 σ_{K-1} / σ_K <= K / (1 - κ)``.

So for κ <= 1/2 the errors of all power sums together change log σ_K by at most ``2.8 K δ``, and float32 sums are
accurate enough. The power sums from the (r+1)-th on contribute at most ``u κ^r / ((r + 1) (1 - κ))``, so a few sums
suffice when κ is small. The terms of the gradient also decrease by the factor κ. If the values are few or of very
different size (κ > 1/2), the largest must be split off first (``leading.py``). The proof then holds with σ the
polynomials of all values and p_i the sums over the values not split off.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from topk_losses._smooth_svm.leading import LOG2E, ratios, stacked_prefixes, totals, weights

__all__ = [
    "LARGEST_EXPONENT",
    "enough_powers",
    "horner",
    "in_units_of_one",
    "log_subsets",
    "log_symmetric",
    "log_symmetric_table",
    "newton",
    "power_sums",
    "to_unit",
]

LARGEST_EXPONENT = 690.0  # its exponential is still a float64, with a factor of 1e8 to spare
PART = 2**17  # entries whose powers are computed at once
FEW_TERMS = 8  # up to this number, adding term by term is faster than summing a stacked table


def log_symmetric_table(log_values: Tensor, k: int) -> Tensor:
    """``log σ_0 … log σ_k`` of ``exp(log_values)``: ``(..., L)`` to ``(..., k + 1)``, for any k, slowly.

    Adding a class of value e turns σ_m into ``σ_m + e σ_{m-1}``. All terms are positive, so nothing cancels.
    """
    shape = log_values.shape[:-1]
    table = torch.cat([log_values.new_zeros(*shape, 1), log_values.new_full((*shape, k), -torch.inf)], -1)
    for value in log_values.unbind(-1):
        grown = _logaddexp(table[..., 1:], table[..., :-1] + value.unsqueeze(-1))
        table = torch.cat([table[..., :1], grown], -1)
    return table


def _logaddexp(a: Tensor, b: Tensor) -> Tensor:
    """``log(exp(a) + exp(b))`` whose gradient is 0, not NaN, where both are -inf."""
    nothing = (a == -torch.inf) & (b == -torch.inf)
    return torch.logaddexp(a.masked_fill(nothing, 0), b.masked_fill(nothing, 0)).masked_fill(
        nothing, -torch.inf
    )


def log_symmetric(values: Tensor, k: int) -> Tensor:
    """``log σ_k`` of the rows ``(N, L)`` in float64, ``(N,)``, in differentiable operations.

    A positive recursion handles the 3k largest values, power sums the others. ``leading.py`` and the proof above show
    why this does not amplify errors.
    """
    if log_subsets(values.shape[1], k) > LARGEST_EXPONENT:
        return log_symmetric_table(values, k)[:, k]
    limits = torch.finfo(values.dtype)
    top = values.topk(min(3 * k, values.shape[1]), dim=1)
    leading = top.values.t().clamp(limits.min, limits.max)
    table = stacked_prefixes(ratios(leading, 0, leading.shape[0], k, 1.0))[-1]
    rest = None
    if leading.shape[0] < values.shape[1]:
        exponents = ((values - leading[-1].detach()[:, None]) * LOG2E).clamp(max=1)
        small = exponents.scatter(1, top.indices, -torch.inf).exp2()
        scaled, factors = to_unit(power_sums(small, [small.sum(1)], k, overwrite=False), k)
        rest = in_units_of_one(newton(scaled, k), factors[0])
    total = (totals(weights(leading, k, 1.0), rest)[0] * table).sum(0)
    return top.values[:, :k].detach().sum(1) + total.log()


def enough_powers(k: int, kappa: float, mass: float, tolerance: float) -> int:
    """The smallest r for which the power sums after the r-th change ``log σ_K`` by less than the tolerance."""
    powers = 1
    while powers < k and mass * kappa**powers > tolerance * (powers + 1) * (1 - kappa):
        powers += 1
    return powers


def power_sums(values: Tensor, known: list[Tensor], powers: int, *, overwrite: bool) -> Tensor:
    """``p_1 … p_r`` of values ``(N, L)`` in float64, ``(r, N)``; ``known`` contains at least p_1.

    With ``overwrite`` (not for autograd) a few rows are processed at a time, so that the buffers for their powers fit
    into the cache.
    """
    missing = range(len(known) + 1, powers + 1)
    if not missing:
        return torch.stack(known[:powers]).to(torch.float64)
    parts = torch.split(values, max(1, PART // values.shape[1])) if overwrite else (values,)
    sums = [torch.stack(_sums_of_powers(part, missing, overwrite=overwrite)) for part in parts]
    missing_sums = sums[0] if len(sums) == 1 else torch.cat(sums, 1)
    return torch.cat([torch.stack(known), missing_sums]).to(torch.float64)


def _sums_of_powers(values: Tensor, wanted: range, *, overwrite: bool) -> list[Tensor]:
    """``p_i`` for the wanted powers, starting with p_2 or p_3; p_4 needs only the squares."""
    squares = values * values
    sums = [squares.sum(1)] if wanted[0] == 2 else []
    power = squares
    for i in range(3, wanted.stop):
        if i == 4:
            sums.append((squares * squares).sum(1) if not overwrite else _norm_squared(squares))
            continue
        factor = squares if i == 5 else values
        power = power.mul_(factor) if overwrite and i > 3 else power * factor
        sums.append(power.sum(1))
    return sums


def _norm_squared(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norms.square()


def to_unit(sums: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``(-v)^-i p_i`` for the unit ``v = max(p_1 / K, 1)``, and the factors ``(-v)^-i``, both ``(r, N)``.

    In this unit ``σ_m <= K^m / m! <= e^K`` for any number of values, so nothing overflows.
    """
    inverse = (sums[0].detach() / -k).clamp(max=-1).reciprocal()
    factors = inverse.expand(sums.shape[0], -1).cumprod(0)
    return sums * factors, factors


def newton(sums: Tensor, k: int) -> list[Tensor]:
    """σ_0 … σ_K, each ``(N,)``, from power sums ``(-1)^i p_i`` ``(r, N)``; sums after the r-th are taken as 0."""
    powers = sums.shape[0]
    polynomials = [torch.ones_like(sums[0]), -sums[0]]
    rows, nothing = sums.unbind(0), torch.zeros_like(sums[0])
    latest_last = sums.flip(0) if powers > FEW_TERMS else sums
    for m in range(2, k + 1):
        terms = min(m, powers)
        if terms <= FEW_TERMS:
            total = nothing
            for i in range(1, terms + 1):
                total = torch.addcmul(total, rows[i - 1], polynomials[m - i], value=-1 / m)
        else:
            table = torch.stack(polynomials[m - terms :])
            total = (latest_last[powers - terms :] * table).sum(0) * (-1 / m)
        polynomials.append(total)
    return polynomials


def in_units_of_one(polynomials: list[Tensor], factor: Tensor) -> Tensor:
    """Undo :func:`to_unit`, given its first factor: ``σ_m v^m`` ``(K + 1, N)``.

    A σ_m that rounding makes negative becomes 0; it is negligible beside the values split off.
    """
    unit = factor.reciprocal().neg().expand(len(polynomials) - 1, -1).cumprod(0)
    return torch.stack(polynomials).clamp(min=0) * torch.cat([torch.ones_like(unit[:1]), unit])


@functools.lru_cache(64)
def log_subsets(count: int, k: int) -> float:
    """The logarithm of the number of k-subsets, which bounds log σ_k in units of its largest product."""
    return math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)


def horner(values: Tensor, coefficients: Tensor, out: Tensor) -> Tensor:
    """Write ``Σ_i c_i e^i`` for i = 1 … r into ``out`` ``(N, L)``: values ``(N, L)``, coefficients ``(r, N)``."""
    columns = coefficients.unsqueeze(-1).unbind(0)
    torch.mul(values, columns[-1], out=out)
    for column in columns[-2::-1]:
        out.add_(column).mul_(values)
    return out
