"""The smooth top-K SVM's rows: the softplus's argument, and what the gradient needs, for scores ``(N, L)``.

Two ways lead to ``log σ_K - log σ_{K-1}`` of ``e_j = exp(s_j / (K τ))`` over the classes j ≠ y, and to
``π^(K) - π^(K-1)``:

* ``comparable_rows``: power sums of all classes (``_power_sums.py``), for rows in which no class dominates;
* ``split_rows``: the M largest classes apart (``_leading.py``), power sums of the rest. It is right for any row.

The work over all classes is done in the scores' own precision, in which errors are not amplified (proof in
``_power_sums.py``); the largest classes and the row's scalars are float64, which is what makes the argument
accurate when τ is small: ``s_y / (K τ)`` may be 1e7.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._leading import LOG2E, adjoint, prefixes, ratios, totals, weights
from topk_losses._power_sums import enough_powers, horner, newton, power_sums, to_unit

__all__ = ["Problem", "Slope", "rows_argument", "slope_rows"]

EXTRA_FIRST, EXTRA_STEP = 3, 8  # classes split off beyond K before the first look at κ, and between looks
KAPPA_GOOD = 0.15  # below it a power sum fewer costs more than the classes it takes


class Problem(NamedTuple):
    """The loss's constants, and whether data may decide how much is computed.

    Looking at data needs eager tensors on the CPU; without it the full number of classes is split off and all
    K power sums are used, which the proofs cover for any data.
    """

    k: int
    tau: float
    adaptive: bool
    with_slope: bool

    @property
    def scale(self) -> float:
        """Scores times this are the exponents of e."""
        return 1 / (self.k * self.tau)


class Slope(NamedTuple):
    """``π^(K) - π^(K-1)``: a polynomial in values e ``(N, L)``, and entries ``(N, M)`` that replace it at index."""

    values: Tensor
    coefficients: Tensor
    index: Tensor
    entries: Tensor


def rows_argument(
    scores: Tensor, labels: Tensor, margin: float | Tensor, problem: Problem
) -> tuple[Tensor, Slope]:
    """The argument of the softplus ``(N,)`` in float64, for labels ``(N, 1)`` and a margin per row."""
    own = scores.gather(1, labels).squeeze(1).to(torch.float64)
    offset = margin / problem.tau - own * problem.scale
    if problem.adaptive:
        others = scores.scatter(1, labels, -torch.inf)
        limits = torch.finfo(scores.dtype)
        reference = others.amax(1, keepdim=True).clamp_(limits.min, limits.max)
        values = others.sub_(reference).mul_(problem.scale * LOG2E).exp2_()
        mass = values.sum(1)
        least, most = torch.stack(mass.aminmax()).tolist()
        if least >= (3 * problem.k if problem.k > 1 else 1) and most < torch.inf:
            shift = reference.squeeze(1).to(torch.float64) * problem.scale
            argument, slope = comparable_rows(values, mass, least, problem)
            return argument.add_(shift).add_(offset), slope
    argument, slope = split_rows(scores.scatter(1, labels, -torch.inf), problem)
    return argument + offset, slope


def tolerance(dtype: torch.dtype) -> float:
    """What may be left out of log σ_K."""
    return 1e-8 if dtype == torch.float32 else 1e-17


def comparable_rows(values: Tensor, mass: Tensor, least: float, problem: Problem) -> tuple[Tensor, Slope]:
    """``log σ_K - log σ_{K-1}`` of values whose largest is 1 and whose sum is at least 3K, or K = 1.

    ``K σ_K >= (p_1 - K + 1) σ_{K-1}``, since every (K-1)-subset leaves at least that much to extend it with: hence κ.
    """
    k = problem.k
    kappa = k / (least - k + 1) if k > 1 else 0.0
    powers = enough_powers(k, kappa, k / (1 - kappa), tolerance(values.dtype))
    sums, factors = to_unit(power_sums(values, mass, powers), k)
    polynomials = newton(sums, k)
    last, before = polynomials[k], polynomials[k - 1]
    argument = (last / (before * factors[0])).log_()
    if not problem.with_slope:
        return argument, _slope(values)
    shares = polynomials[k - powers : k].flip(0) / last
    shares[: min(powers, k - 1)] -= polynomials[max(k - 1 - powers, 0) : k - 1].flip(0) / before
    shares *= factors
    shares[1::2].neg_()
    return argument, _slope(values, shares.t().to(values.dtype))


def split_rows(others: Tensor, problem: Problem) -> tuple[Tensor, Slope]:
    """``log σ_K - log σ_{K-1}`` of ``exp(scale · others)``, with the largest values split off.

    Infinite scores are taken for the largest finite ones, which leaves their limits: ties where several are
    infinite, and no NaN from a difference of two.
    """
    k, scale = problem.k, problem.scale
    limits = torch.finfo(others.dtype)
    found = others.topk(min(3 * k, others.shape[1] - 1), dim=1)
    threshold = found.values[:, k - 1].to(torch.float64) * scale
    leading = (
        found.values.t()
        .to(torch.float64, memory_format=torch.contiguous_format)
        .clamp_(limits.min, limits.max)
    )
    tables, factors = _leading_tables(leading, problem)
    leading, index = leading[: tables.shape[0] - 1], found.indices[:, : tables.shape[0] - 1]
    weight = weights(leading, k, scale)
    values, sums = _rest(others, leading, index, tables[-1], problem)
    rest, unit = None, None
    if sums is not None:
        scaled, unit = to_unit(sums, k)
        rest = _in_units_of_one(newton(scaled, k), unit)
    start = totals(weight, rest)
    total = (start * tables[-1]).sum(1)
    argument = threshold + (total[0] / total[1]).log()
    if not problem.with_slope:
        return argument, _slope(others)
    coefficients = None
    if rest is not None and sums is not None:
        coefficients = _rest_shares(weight * tables[-1] / total[:, None], rest, sums.shape[0])
        coefficients = coefficients.to(others.dtype)
    inclusion = adjoint(start, factors, tables) / total[:, None]
    entries = (inclusion[0] - inclusion[1]).t().to(others.dtype)
    return argument, _slope(others if values is None else values, coefficients, index, entries)


def _leading_tables(leading: Tensor, problem: Problem) -> tuple[Tensor, list[Tensor]]:
    """Ê after each of the leading values ``(M + 1, K + 1, N)`` and their ratios, in blocks.

    With data to look at, values are added only until κ <= ``KAPPA_GOOD`` in every row.
    """
    k, scale = problem.k, problem.scale
    count, samples = leading.shape
    tables = leading.new_zeros(count + 1, k + 1, samples)
    tables[:, 0] = 1
    factors: list[Tensor] = []
    start = 0
    while start < count:
        width = (EXTRA_STEP if start else k + EXTRA_FIRST) if problem.adaptive else count
        stop = min(start + width, count)
        factors.append(ratios(leading, start, stop, k, scale))
        prefixes(tables, factors[-1], start)
        start = stop
        if start < count and _kappa(tables[start], leading[:start], problem).amax().item() <= KAPPA_GOOD:
            break
    return tables[: start + 1], factors


def _kappa(table: Tensor, leading: Tensor, problem: Problem) -> Tensor:
    """``a σ_{K-1} / σ_K`` of the leading values, a the last of them; more values only make it smaller."""
    k = problem.k
    gap = (leading[-1] - leading[k - 1]) * problem.scale
    return table[k - 1] / table[k] * gap.exp()


def _rest(
    others: Tensor, leading: Tensor, index: Tensor, table: Tensor, problem: Problem
) -> tuple[Tensor | None, Tensor | None]:
    """Values of the rest in units of the last leading one, and as many power sums as they need (or None)."""
    count = others.shape[1] - 1 - leading.shape[0]
    if count == 0:
        return None, None
    kappa = _kappa(table, leading, problem)
    if problem.adaptive:
        least_useful = tolerance(others.dtype)
        most = kappa.nan_to_num(0).amax().item()
        if most * count < least_useful:
            return None, None
    reference = leading[-1].to(others.dtype)[:, None]
    values = (others - reference).mul_(problem.scale * LOG2E).clamp_(max=0).exp2_().scatter_(1, index, 0)
    mass = values.sum(1)
    powers = problem.k
    if problem.adaptive:
        share = (mass * kappa).nan_to_num(0).amax().item()
        powers = enough_powers(problem.k, min(most, 0.5), share, least_useful)
    return values, power_sums(values, mass, powers)


def _in_units_of_one(polynomials: Tensor, unit: Tensor) -> Tensor:
    """Undo ``to_unit``: ``R_m v^m``."""
    inverse = unit[0].expand(polynomials.shape[0] - 1, -1).cumprod(0)
    return torch.cat([polynomials[:1], polynomials[1:] / inverse])


def _rest_shares(parts: Tensor, rest: Tensor, powers: int) -> Tensor:
    """Coefficients ``(-1)^(i-1) a^i (σ_{K-i} / σ_K - σ_{K-1-i} / σ_{K-1})`` of all values, ``(N, r)``.

    ``parts`` are the leading values' polynomials in units of σ_K and of σ_{K-1} of all values, ``(2, K + 1, N)``.
    """
    k = rest.shape[0] - 1
    backwards = rest.flip(0)
    columns = []
    for i in range(1, powers + 1):
        column = (parts[0, : k - i + 1] * backwards[i:]).sum(0)
        if i < k:
            column = column - (parts[1, : k - i] * backwards[i + 1 :]).sum(0)
        columns.append(column if i % 2 else -column)
    return torch.stack(columns, 1)


def _slope(
    values: Tensor,
    coefficients: Tensor | None = None,
    index: Tensor | None = None,
    entries: Tensor | None = None,
) -> Slope:
    """A slope, with tensors of no columns for what is not there."""
    nothing = values.new_empty(values.shape[0], 0)
    missing = nothing.to(torch.int64)
    return Slope(
        nothing if coefficients is None else values,
        nothing if coefficients is None else coefficients,
        missing if index is None else index,
        nothing if entries is None else entries,
    )


def slope_rows(slope: Slope, labels: Tensor, factor: Tensor, classes: int) -> Tensor:
    """The gradient ``(N, L)``: factor ``(N, 1)`` times ``π^(K) - π^(K-1)``, and minus the factor at the label."""
    values, coefficients, index, entries = slope
    if coefficients.shape[1]:
        gradient = horner(values, coefficients * factor)
    else:
        gradient = factor.new_zeros(1).expand(factor.shape[0], classes).clone()
    if index.shape[1]:
        gradient.scatter_(1, index, entries * factor)
    return gradient.scatter_(1, labels, -factor)
