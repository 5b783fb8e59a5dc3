"""Elementary symmetric polynomials in log-space, and the inclusion probabilities that are their gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._checks import check_k, check_positive, check_scores
from topk_losses._leading import LOG2E, ratios, stacked_prefixes, totals, weights
from topk_losses._power_sums import in_units_of_one, log_subsets, newton, power_sums, to_unit
from topk_losses._shapes import computing

__all__ = ["inclusion_probabilities", "log_elementary_symmetric", "log_symmetric_table"]

LARGEST_EXPONENT = 690.0  # exp of it is just below the largest float64


def log_symmetric_table(log_values: Tensor, k: int) -> Tensor:
    """``log σ_0 … log σ_k`` of ``exp(log_values)``: ``(..., L)`` to ``(..., k + 1)``, for any k, slowly.

    Adding a class of value e turns σ_m into ``σ_m + e σ_{m-1}``; all terms are positive, so that nothing
    cancels.
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


def _log_symmetric(values: Tensor, k: int) -> Tensor:
    """``log σ_k`` of rows ``(N, L)`` in float64: ``(N,)``, in operations that autograd sees through.

    The 3k largest values enter by a positive recursion, the others by power sums, whose errors are not amplified
    after that; ``_leading.py`` and ``_power_sums.py`` say why.
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


def log_elementary_symmetric(log_values: Tensor, k: int) -> Tensor:
    r"""``log σ_k(exp(log_values))``, the k-th elementary symmetric polynomial: the sum over all k-subsets.

    .. math:: \log \sum_{A \subset [L], |A| = k} \exp \sum_{j \in A} v_j

    Args:
        log_values: ``(..., L)``; -inf stands for a value of 0.
        k: degree, in ``[1, L]``.

    Returns:
        ``(...)``; -inf where fewer than k values are not 0. float64 for float64 values, else float32.

    Raises:
        ValueError: for values that are not floating-point and k outside ``[1, L]``.

    Example:
        >>> import torch
        >>> log_elementary_symmetric(torch.tensor([1.0, 2.0, 3.0]).log(), k=2).exp()  # 1·2 + 1·3 + 2·3
        tensor(11.0000)
    """
    check_scores(log_values, "log_values", dimensions=1)
    check_k(k, log_values.shape[-1], "the number of values")
    rows = computing(log_values)
    result = _log_symmetric(rows.reshape(-1, rows.shape[-1]).to(torch.float64), k)
    return result.reshape(rows.shape[:-1]).to(rows.dtype)


def inclusion_probabilities(scores: Tensor, k: int, temperature: float = 1.0) -> Tensor:
    r"""The probability that each class is in a random k-subset A, drawn with weight ``exp(Σ_{j∈A} s_j / T)``.

    .. math:: \pi_j = e_j \sigma_{k-1}(e_{\setminus j}) / \sigma_k(e), \qquad e = \exp(s / T)

    It is the gradient of ``log σ_k``, and differentiable again. At k = 1 the probabilities are the softmax. They
    are what to average over several views of one image before the k best classes are taken (Berrada et al. 2018,
    appendix C).

    Args:
        scores: ``(..., L)``; -inf masks a class.
        k: size of the subset, in ``[1, L]``.
        temperature: T, above 0.

    Returns:
        ``(..., L)``, each row summing to k, or to the number of its finite scores where that is smaller; float64
        for float64 scores, else float32.

    Raises:
        ValueError: for scores that are not floating-point, k outside ``[1, L]`` and temperatures not above 0.

    Example:
        >>> import torch
        >>> inclusion_probabilities(torch.tensor([1.0, 2.0, 3.0]).log(), k=2)
        tensor([0.4545, 0.7273, 0.8182])
    """
    check_scores(scores, dimensions=1)
    check_k(k, scores.shape[-1], "the number of classes")
    check_positive("temperature", temperature)
    rows = computing(scores)
    values = rows.reshape(-1, rows.shape[-1]).to(torch.float64) / temperature
    chances: Tensor = torch.func.grad(lambda v: _log_symmetric(v, k).sum())(values)
    return chances.reshape(rows.shape).to(rows.dtype)
