"""The smooth top-K SVM for scores ``(N, L)``: the argument of the softplus, and what the gradient needs.

``log σ_K - log σ_{K-1}`` of ``e_j = exp(s_j / (K τ))`` over the classes j ≠ y, and ``π^(K) - π^(K-1)``, are computed in
one of two ways:

* ``_without_split``: power sums of all classes (``symmetric.py``), for rows in which no class dominates;
* ``_split_rows``: a recursion over the M largest classes (``leading.py``) and power sums of the rest, for any row.

Computations over all classes use the precision of the scores; ``symmetric.py`` proves that this does not amplify
errors. The largest classes and the scalars of a row are float64. This keeps the argument accurate for small τ, where
``s_y / (K τ)`` may be 1e7.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._smooth_svm.leading import (
    LOG2E,
    adjoint,
    prefixes,
    ratios,
    stacked_prefixes,
    totals,
    weights,
)
from topk_losses._smooth_svm.symmetric import (
    enough_powers,
    horner,
    in_units_of_one,
    newton,
    power_sums,
    to_unit,
)

__all__ = ["Problem", "Slope", "rows_argument", "slope_rows"]

EXTRA_FIRST, EXTRA_STEP = 3, 8  # classes split off beyond K before κ is first computed, and each time after
KAPPA_GOOD = 0.15  # below it, splitting off more classes costs more than the power sum that it saves
# Rows whose largest value is within [1 / NEAR_ONE, NEAR_ONE] need no reference: their exponents round by at most 3e-7.
NEAR_ONE = 2.0**8


class Problem(NamedTuple):
    """The constants of the loss, and whether values may decide how much is computed (``adaptive``).

    Reading values needs eager tensors on the CPU. Otherwise the maximal number of classes is split off and all K power
    sums are used; the proofs cover this for all values.
    """

    k: int
    tau: float
    adaptive: bool
    with_slope: bool

    @property
    def scale(self) -> float:
        """The factor from scores to the exponents of e, ``1 / (K τ)``."""
        return 1 / (self.k * self.tau)


class Slope(NamedTuple):
    """``π^(K-1) - π^(K)``: a polynomial in ``values`` ``(N, L)``, replaced by ``entries`` ``(N, M)`` at ``places``."""

    values: Tensor
    coefficients: Tensor
    places: Tensor
    entries: Tensor


def rows_argument(
    scores: Tensor, labels: Tensor, margin: float | Tensor, problem: Problem
) -> tuple[Tensor, Slope]:
    """The argument of the softplus ``(N,)`` in float64, for labels ``(N, 1)`` and a margin per row."""
    own = scores.gather(1, labels).squeeze(1).to(torch.float64)
    result = None
    if problem.adaptive:
        result = _without_split(scores, labels, problem)
    if result is None:
        result = _split_rows(scores.scatter(1, labels, -torch.inf), problem)
    ratio, reference, slope = result
    # A masked label's loss is set elsewhere. An infinite argument would give an ignored sample 0 · inf.
    own = own.masked_fill(own == torch.inf, torch.nan).masked_fill(own == -torch.inf, 0)
    # The label's score is subtracted from another one first, so that an offset of all scores costs no digits.
    return torch.add(ratio, reference - own, alpha=problem.scale) + margin / problem.tau, slope


def _without_split(
    scores: Tensor, labels: Tensor, problem: Problem
) -> tuple[Tensor, float | Tensor, Slope] | None:
    """``log σ_K - log σ_{K-1}`` in units of a reference, by power sums alone; None if a class dominates some row.

    Moderate scores need no reference: it is 0.
    """
    values = (scores * (problem.scale * LOG2E)).exp2_().scatter_(1, labels, 0)
    mass, largest = values.sum(1), values.amax(1)
    low, high = (bound.item() for bound in largest.aminmax())
    if low * NEAR_ONE >= 1 and high <= NEAR_ONE:
        result = _comparable_rows(values, mass, largest, high, problem)
        return None if result is None else (result[0], 0.0, result[1])
    number = (mass / largest).nan_to_num(torch.inf)  # NaN where all values overflow or underflow
    if number.amin().item() < 3 * problem.k and problem.k > 1:
        return None
    return _with_reference(scores, labels, problem)


def _with_reference(scores: Tensor, labels: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Slope] | None:
    """As :func:`_without_split` for scores of any size, in units of each row's largest value."""
    others = scores.scatter(1, labels, -torch.inf)
    limits = torch.finfo(scores.dtype)
    largest = others.amax(1, keepdim=True)
    reference = largest.clamp(limits.min, limits.max)
    values = others.sub_(reference).mul_(problem.scale * LOG2E).exp2_()
    result = _comparable_rows(values, values.sum(1), None, 1.0, problem)
    if result is None:
        return None
    return _invalid_to_nan(result[0], largest), reference.squeeze(1).double(), result[1]


def _invalid_to_nan(argument: Tensor, largest: Tensor) -> Tensor:
    """The argument with NaN in the rows whose largest score ``(N, 1)`` is NaN or +inf."""
    return argument.masked_fill(~(largest.detach().squeeze(1) < torch.inf), torch.nan)


def _tolerance(dtype: torch.dtype) -> float:
    """The truncation error allowed in log σ_K; the gradient of a row sums to 0 whatever the truncation."""
    return 2e-7 if dtype == torch.float32 else 1e-17


def _comparable_rows(
    values: Tensor, mass: Tensor, largest: Tensor | None, high: float, problem: Problem
) -> tuple[Tensor, Slope] | None:
    """``log σ_K - log σ_{K-1}`` if K = 1, or if the mass p_1 of each row is at least 3K times its largest value a.

    Otherwise None. The bound κ follows from ``K σ_K >= (p_1 - (K - 1) a) σ_{K-1}``: every (K-1)-subset leaves at least
    that mass to extend it with. ``largest`` is a, None stands for 1; ``high`` is its maximum over all rows.
    """
    k = problem.k
    number = mass if largest is None else mass / largest
    least, most = (bound.item() for bound in number.aminmax())
    if not (least >= (3 * k if k > 1 else 1) and most < torch.inf):
        return None
    sums, powers = [mass], 1
    if k > 1:
        sums.append(torch.linalg.vector_norm(values, dim=1).square())
        second = sums[1] if largest is None else sums[1] / largest.square()
        kappa = k / (least - k + 1)
        powers = max(2, enough_powers(k, kappa, second.amax().item() * kappa, _tolerance(values.dtype)))
    if high > 1 and high**powers > 2.0**100:
        return None
    scaled, factors = to_unit(power_sums(values, sums, powers, overwrite=True), k)
    polynomials = newton(scaled, k)
    last, before = polynomials[k], polynomials[k - 1]
    argument = (last / (before * factors[0])).neg_().log_()
    if not problem.with_slope:
        return argument, _slope(values)
    table = torch.stack([*polynomials[k - 1 :: -1], torch.zeros_like(mass, dtype=last.dtype)][: powers + 1])
    shares = (table[:-1] / last).sub_(table[1:] / before).mul_(factors)
    return argument, _slope(values, shares)


def _split_rows(others: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Slope]:
    """``log σ_K - log σ_{K-1}`` in units of the K-th largest value, and its score; the largest values are split off.

    Infinite scores are replaced by the largest finite ones. This keeps their limits, and a difference of two infinite
    scores is 0 instead of NaN.
    """
    k, scale = problem.k, problem.scale
    limits = torch.finfo(others.dtype)
    top = others.topk(min(3 * k, others.shape[1] - 1), dim=1)
    # K times the scale times a gap must not overflow, for float64 scores either.
    bound = min(limits.max, torch.finfo(torch.float64).max / (4 * k * max(scale, 1)))
    leading = top.values.t().contiguous().to(torch.float64).clamp(-bound, bound)
    tables, factors = _leading_tables(leading, problem)
    leading, index = leading[: tables.shape[0] - 1], top.indices[:, : tables.shape[0] - 1]
    weight = weights(leading, k, scale)
    values, sums = _rest(others, leading, index, tables[-1], problem)
    rest = None
    if sums is not None:
        scaled, factors_rest = to_unit(sums, k)
        rest = in_units_of_one(newton(scaled, k), factors_rest[0])
    start = totals(weight, rest)
    total = (start * tables[-1]).sum(1)
    reference = top.values[:, k - 1].detach().to(torch.float64)
    ratio = _invalid_to_nan((total[0] / total[1]).log(), top.values[:, :1])
    if not problem.with_slope:
        return ratio, reference, _slope(others)
    coefficients = None
    if rest is not None and sums is not None:
        coefficients = _rest_shares(weight * tables[-1] / total[:, None], rest, sums.shape[0])
    inclusion = adjoint(start, factors, tables) / total[:, None]
    entries = (inclusion[1] - inclusion[0]).t()
    return ratio, reference, _slope(others if values is None else values, coefficients, index, entries)


def _leading_tables(leading: Tensor, problem: Problem) -> tuple[Tensor, list[Tensor]]:
    """Ê after each of the leading values ``(M + 1, K + 1, N)``, and their ratios, in blocks.

    With ``adaptive``, values are added only until κ <= ``KAPPA_GOOD`` in every row.
    """
    k, scale = problem.k, problem.scale
    count, samples = leading.shape
    if not problem.adaptive:
        block = ratios(leading, 0, count, k, scale)
        return stacked_prefixes(block), [block]
    tables = leading.new_zeros(count + 1, k + 1, samples)
    tables[:, 0] = 1
    factors: list[Tensor] = []
    start = 0
    while start < count:
        stop = min(start + (EXTRA_STEP if start else k + EXTRA_FIRST), count)
        factors.append(ratios(leading, start, stop, k, scale))
        prefixes(tables, factors[-1], start)
        start = stop
        if start < count and _kappa(tables[start], leading[:start], problem).amax().item() <= KAPPA_GOOD:
            break
    return tables[: start + 1], factors


def _kappa(table: Tensor, leading: Tensor, problem: Problem) -> Tensor:
    """``κ = a σ_{K-1} / σ_K`` of the leading values, a the last of them; adding values only decreases κ."""
    k = problem.k
    gap = (leading[-1] - leading[k - 1]) * problem.scale
    return gap.exp() * table[k - 1] / table[k]


def _rest(
    others: Tensor, leading: Tensor, index: Tensor, table: Tensor, problem: Problem
) -> tuple[Tensor | None, Tensor | None]:
    """Values of the rest in units of the last leading value, and the power sums that they need; None if negligible."""
    count = others.shape[1] - 1 - leading.shape[0]
    if count == 0:
        return None, None
    kappa = _kappa(table, leading, problem)
    tolerance = _tolerance(others.dtype)
    most = kappa.nan_to_num(0).amax().item() if problem.adaptive else 0.5
    if problem.adaptive and most * count < tolerance / 10:
        return None, None
    reference = leading[-1].detach().to(others.dtype)[:, None]
    scale = problem.scale * LOG2E
    # The bound affects only +inf. The other exponents are at most 0; a bound of 0 would stop their gradient at ties.
    if problem.adaptive:
        exponents = (others - reference).mul_(scale).clamp_(max=1).scatter_(1, index, -torch.inf)
    else:
        exponents = ((others - reference) * scale).clamp(max=1).scatter(1, index, -torch.inf)
    values = exponents.exp2()
    mass = values.sum(1)
    powers = problem.k
    if problem.adaptive:
        share = (mass * kappa).nan_to_num(0).amax().item()
        powers = enough_powers(problem.k, min(most, 0.5), share, tolerance)
    return values, power_sums(values, [mass], powers, overwrite=problem.adaptive)


def _rest_shares(parts: Tensor, rest: Tensor, powers: int) -> Tensor:
    """Coefficients ``(-1)^i a^i (σ_{K-i} / σ_K - σ_{K-1-i} / σ_{K-1})`` with σ of all values, ``(r, N)``.

    ``parts`` ``(2, K + 1, N)`` are the leading values' polynomials, divided by σ_K and by σ_{K-1} of all values.
    """
    k = rest.shape[0] - 1
    backwards = rest.flip(0)
    rows = []
    for i in range(1, powers + 1):
        row = (parts[0, : k - i + 1] * backwards[i:]).sum(0)
        if i < k:
            row = row - (parts[1, : k - i] * backwards[i + 1 :]).sum(0)
        rows.append(-row if i % 2 else row)
    return torch.stack(rows)


def _slope(
    values: Tensor,
    coefficients: Tensor | None = None,
    places: Tensor | None = None,
    entries: Tensor | None = None,
) -> Slope:
    """A slope in the precision of the values, with empty tensors for missing parts."""
    nothing = values.new_empty(0)
    return Slope(
        nothing if coefficients is None else values,
        nothing if coefficients is None else coefficients.to(values.dtype),
        nothing.to(torch.int64) if places is None else places,
        nothing if entries is None else entries.to(values.dtype),
    )


def slope_rows(slope: Slope, labels: Tensor, factor: Tensor, out: Tensor) -> None:
    """Write the gradient ``(N, L)`` for ``factor = -p / K`` ``(N,)``.

    It is ``factor (π^(K-1) - π^(K))``, and ``factor`` itself at the label.
    """
    values, coefficients, places, entries = slope
    if coefficients.numel():
        horner(values, coefficients * factor, out)
    else:
        out.zero_()
    column = factor[:, None]
    if places.numel():
        out.scatter_(1, places, entries * column)
    out.scatter_(1, labels, column)
