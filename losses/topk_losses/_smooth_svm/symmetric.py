"""Elementary symmetric polynomials in log-space, in differentiable operations."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._smooth_svm.leading import LOG2E, ratios, stacked_prefixes, totals, weights
from topk_losses._smooth_svm.power_sums import in_units_of_one, log_subsets, newton, power_sums, to_unit

__all__ = ["LARGEST_EXPONENT", "log_symmetric", "log_symmetric_table"]

LARGEST_EXPONENT = 690.0  # its exponential is still a float64, with a factor of 1e8 to spare


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

    A positive recursion handles the 3k largest values, power sums the others. ``leading.py`` and ``power_sums.py`` show
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
