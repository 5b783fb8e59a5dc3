"""The expectation of the noised top-K operator: quadrature over a Poisson-binomial tail, without noise."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from topk_losses._candidates import grouped
from topk_losses._checks import check_k, check_not_negative, check_scores, values_are_readable
from topk_losses._kernels.dispatch import is_batched
from topk_losses._kernels.expected import Expectations, expectations, slopes, takes_expected
from topk_losses._rank_quadrature import rank_mean
from topk_losses._shapes import computing

__all__ = ["expected_above", "expected_below_largest", "expected_topk"]

SHORTEST = 64  # rows shorter than this, or than 8 k, take the plain path
TAIL = 1e-12  # probability left outside the window of integration, at either end
COARSE_NODES = 49  # of the search for the window
NODES = 64  # of the trapezoid rule
BUDGET = 1 << 18  # numbers of one float64 intermediate, rows × classes × nodes: 2 MiB stay in the cache
COMPILED_BUDGET = 1 << 24  # a graph has every piece unrolled in it, so there are few: 128 MiB


def expected_topk(scores: Tensor, k: int, epsilon: float) -> Tensor:
    r"""The expectation of the k-th largest of independent Gaussians ``N(s_i, ε²)``, and no Monte-Carlo.

    .. math:: E\,(s + \varepsilon Z)_{[k]} = b - \int_a^b F(t)\,dt, \qquad
        F(t) = P\bigl(\text{at most k - 1 of the } s_i + \varepsilon Z_i \text{ exceed } t\bigr)

    F is the tail of a Poisson-binomial distribution, a product of polynomials ``(1 - p_i) + p_i x`` truncated at
    degree k - 1. The window ``[a, b]`` is where F lies within (1e-12, 1 - 1e-12): first the union bound gives
    one that is certain and about 16 ε wide, then a few nodes on it narrow it down. The trapezoid rule with 64
    nodes on the window converges faster than any power of their distance, since F is analytic and flat at both
    ends. The computation is in float64, and its error below 1e-8 ε.

    In eager mode on the CPU and outside ``torch.func``, classes that cannot be the k-th largest (with a probability of
    1e-12, for float32 scores 1e-8) are skipped, and there are as many nodes as the means by every other one ask for.
    Where Numba is installed, for k up to 65, its kernels do so with an error below 1e-10 ε, or 1e-6 ε for float32
    (``_kernels/expected.py`` has the rules); else, for rows of 64 classes and more and k up to an eighth of them,
    torch does, with 1e-9 ε, or 1e-6 ε for float32, where the sweeps are in float32 too (``_rank_quadrature.py``).

    The gradient is the probability that each class is the k-th largest, it sums to 1; the second derivative
    exists as well. Memory is bounded by treating the rows and the nodes in pieces.

    Args:
        scores: s, ``(..., L)``; -inf masks a class; rows with NaN or +inf give NaN.
        k: rank, in ``[1, L]``.
        epsilon: ε, at least 0; at 0 this is the k-th largest score itself.

    Returns:
        ``(...)``; -inf where fewer than k classes are not masked. float64 for float64 scores, else float32.

    Raises:
        ValueError: for scores that are not floating-point, k outside ``[1, L]`` and ε below 0.

    References:
        Garcin et al. 2022 define the expectation, (6) and Definition 3.4, and estimate it from draws.

    Example:
        >>> import torch
        >>> scores = torch.tensor([0.0, 0.0], requires_grad=True)
        >>> value = expected_topk(scores, k=1, epsilon=1.0)  # 1 / sqrt(π)
        >>> value.backward()
        >>> value.detach(), scores.grad
        (tensor(0.5642), tensor([0.5000, 0.5000]))
    """
    check_scores(scores, dimensions=1)
    check_k(k, scores.shape[-1], "the number of classes")
    check_not_negative("epsilon", epsilon)
    values = computing(scores)
    rows = values.reshape(-1, values.shape[-1])
    largest = rows.detach().amax(1)
    exact = epsilon == 0
    mean = rows.topk(k).values[:, -1] if exact else largest + expected_below_largest(rows, k, epsilon)
    return mean.masked_fill(~(largest < torch.inf), torch.nan).reshape(values.shape[:-1])


def expected_below_largest(scores: Tensor, k: int, epsilon: float) -> Tensor:
    """How far the expectation lies from the largest score ``(N,)``, which counts as a constant, for ``(N, L)``.

    Small differences are not rounded away by an offset that all scores have. Rows with NaN or +inf give anything.
    """
    found = _compiled(scores, k, epsilon)
    if found is not None:
        below: Tensor = _CompiledRows.apply(scores, None, found, k, epsilon)
        return below
    if (
        epsilon > 0
        and scores.shape[1] >= max(SHORTEST, 8 * k)
        and values_are_readable(scores)
        and len(scores)
    ):
        groups = grouped(scores.detach(), k)
        if ((groups.largest < torch.inf) & (groups.centre > -torch.inf)).all():
            long: Tensor = _LongRows.apply(scores, groups, k, epsilon, torch.is_grad_enabled())
            return long
    return _below_largest(scores, k, epsilon)


def expected_above(scores: Tensor, labels: Tensor, k: int, epsilon: float) -> Tensor:
    """How far the expectation lies above the scores ``(N, C)`` of labels ``(N, C)``; NaN for rows with NaN or +inf."""
    found = _compiled(scores, k, epsilon) if labels.shape[1] == 1 else None
    if found is not None:
        above: Tensor = _CompiledRows.apply(scores, labels.squeeze(1), found, k, epsilon)
        return above.unsqueeze(1)
    largest = scores.detach().amax(1, keepdim=True)
    own = scores.gather(1, labels) - largest
    gap = expected_below_largest(scores, k, epsilon).unsqueeze(1) - own
    return gap.masked_fill(~(largest < torch.inf), torch.nan)


def _compiled(scores: Tensor, k: int, epsilon: float) -> Expectations | None:
    with_slope = torch.is_grad_enabled() and scores.requires_grad
    return expectations(scores, k, epsilon, with_slope) if takes_expected(scores, k, epsilon) else None


def _below_largest(scores: Tensor, k: int, epsilon: float) -> Tensor:
    """The same, in operations that autograd, ``vmap`` and ``torch.compile`` see through."""
    top = scores.topk(k, dim=1).values
    valid = (top[:, :1].detach() < torch.inf) & (top[:, -1:].detach() > -torch.inf)
    largest, hard = top[:, 0].detach(), top[:, -1]
    masked = hard.detach() == -torch.inf
    if epsilon == 0:
        return torch.where(masked, hard.detach(), hard - largest)
    centre = hard.detach().double()
    # Classes 40 ε away from the k-th score are certainly below or above everything in the window.
    distances = ((scores.double() - centre.unsqueeze(1)) / epsilon).clamp(-40, 40).masked_fill(~valid, 0)
    shift = centre - largest + epsilon * _rank_mean(distances, k)
    return torch.where(valid.squeeze(1), shift, hard.detach()).to(scores.dtype)


class _CompiledRows(torch.autograd.Function):
    """The expectation by compiled kernels, from the largest score, which is a constant, or from a label's score.

    The second derivative is that of the plain path.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        scores, labels, found, ctx.k, ctx.epsilon = inputs
        ctx.save_for_backward(scores, labels, *found)
        own = found.largest if labels is None else scores.gather(1, labels.unsqueeze(1)).squeeze(1)
        result: Tensor = (found.centre - own + ctx.epsilon * found.shift).to(scores.dtype)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scores, labels, *found = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants this differentiated again
            with torch.enable_grad():
                value = _below_largest(scores, ctx.k, ctx.epsilon)
                if labels is not None:
                    value = value - scores.gather(1, labels.unsqueeze(1)).squeeze(1)
            slope = torch.autograd.grad(value, scores, gradient, create_graph=True)[0]
        elif is_batched(gradient):
            ones = torch.ones_like(scores[:, 0])
            slope = gradient.unsqueeze(1) * slopes(Expectations(*found), ones, labels, scores)
        else:
            slope = slopes(Expectations(*found), gradient, labels, scores)
        return slope, None, None, None, None


class _LongRows(torch.autograd.Function):
    """The expectation of long rows on the CPU; its second derivative is that of the plain path."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        scores, groups, ctx.k, ctx.epsilon, with_slope = inputs
        shift, classes, probabilities = rank_mean(scores, groups, ctx.k, ctx.epsilon, with_slope)
        ctx.save_for_backward(scores, classes, probabilities)
        offset = groups.centre.double() - groups.largest.double()
        result: Tensor = (offset + ctx.epsilon * shift).to(scores.dtype)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scores, classes, probabilities = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants this differentiated again
            with torch.enable_grad():
                value = _below_largest(scores, ctx.k, ctx.epsilon)
            slope = torch.autograd.grad(value, scores, gradient, create_graph=True)[0]
        else:
            slope = torch.zeros_like(scores, memory_format=torch.contiguous_format)
            slope.scatter_add_(1, classes.t(), (probabilities * gradient).t().to(slope.dtype))
        return slope, None, None, None, None


def _rank_mean(rows: Tensor, k: int) -> Tensor:
    """The expected k-th largest of ``N(x_i, 1)``, ``(N, L)`` to ``(N,)``, the k-th of the x_i being 0."""
    if 2 * k > rows.shape[1] + 1:  # the k-th largest is the (L - k + 1)-th smallest: the shorter polynomial
        mean: Tensor = -_RankMean.apply(-rows, rows.shape[1] - k + 1)
    else:
        mean = _RankMean.apply(rows, k)
    return mean


class _RankMean(torch.autograd.Function):
    """The mean of the k-th largest of ``N(x_i, 1)``, ``(M, L)`` to ``(M,)``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, k: int) -> Tensor:
        return torch.cat([_mean(piece, k) for piece in _pieces(rows)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], _output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.unsqueeze(-1) * _RankProbabilities.apply(ctx.saved_tensors[0], ctx.k), None


class _RankProbabilities(torch.autograd.Function):
    """The probability of each class to be the k-th largest, ``(M, L)``: the derivative of the mean."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, k: int) -> Tensor:
        return torch.cat([_slope(piece, k) for piece in _pieces(rows)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], _output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor, None]:
        return _curvature(ctx.saved_tensors[0], direction, ctx.k), None


def _budget() -> int:
    return COMPILED_BUDGET if torch.compiler.is_compiling() else BUDGET


def _pieces(rows: Tensor) -> tuple[Tensor, ...]:
    return torch.split(rows, max(1, _budget() // (rows.shape[1] * NODES)))


def _mean(x: Tensor, k: int) -> Tensor:
    end, step, parts = _grid(x, k)
    # Of the ends, where F is 0 and 1, the trapezoid rule takes half.
    area = step * sum(_cdf(x, nodes, k).sum(1) for nodes in parts)
    return end + step / 2 - area


def _slope(x: Tensor, k: int) -> Tensor:
    _, step, parts = _grid(x, k)
    slopes: list[Tensor] = [torch.func.grad(_total)(x, nodes, k) for nodes in parts]
    return -step.unsqueeze(1) * sum(slopes)


def _curvature(rows: Tensor, direction: Tensor, k: int) -> Tensor:
    """The second derivative, which is symmetric, times a direction: forward over reverse."""
    curves = []
    for x, along in zip(_pieces(rows), _pieces(direction), strict=True):
        _, step, parts = _grid(x, k)
        slopes = (partial(torch.func.grad(_total), nodes=nodes, k=k) for nodes in parts)
        curves.append(-step.unsqueeze(1) * sum(torch.func.jvp(slope, (x,), (along,))[1] for slope in slopes))
    return torch.cat(curves)


def _total(x: Tensor, nodes: Tensor, k: int) -> Tensor:
    return _cdf(x, nodes, k).sum()


def _grid(x: Tensor, k: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """The window's end ``(M,)``, the nodes' distance ``(M,)`` and the nodes ``(M, T)`` in pieces of T."""
    x = x.detach()
    # P(X_[k] < t) <= k Φ(t) and P(X_[k] > t) <= (L - k + 1) Φ(-t), since x_[k] = 0; Φ(-t) <= exp(-t²/2) / 2.
    low, high = (math.sqrt(2 * math.log(count / (2 * TAIL))) for count in (k, x.shape[1] - k + 1))
    coarse = torch.linspace(-low, high, COARSE_NODES, dtype=x.dtype, device=x.device)
    cdf = torch.cat([_cdf(x, part.expand(x.shape[0], -1), k) for part in _parts(coarse, x)], 1)
    first = ((cdf < TAIL).sum(1) - 1).clamp(min=0)
    last = (cdf <= 1 - TAIL).sum(1).clamp(max=COARSE_NODES - 1)
    start, end = coarse[first], coarse[last]
    step = (end - start) / (NODES - 1)
    nodes = start.unsqueeze(1) + step.unsqueeze(1) * torch.arange(NODES, device=x.device)
    return end, step, _parts(nodes, x)


def _parts(nodes: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    return torch.split(nodes, max(1, _budget() // max(1, x.numel())), -1)


def _cdf(x: Tensor, nodes: Tensor, k: int) -> Tensor:
    """``P(X_[k] <= t)``, ``(M, L)`` and t ``(M, T)`` to ``(M, T)``: at most k - 1 of the classes exceed t."""
    distances = (nodes.unsqueeze(-1) - x.unsqueeze(1)) / math.sqrt(2)
    product = torch.stack([torch.erfc(-distances), torch.erfc(distances)][:k]) / 2
    while product.shape[-1] > 1:
        half = product.shape[-1] // 2
        rest = product[..., 2 * half :]
        product = _multiply(product[..., :half], product[..., half : 2 * half], k)
        if rest.shape[-1]:
            rest = torch.nn.functional.pad(rest.movedim(0, -1), (0, product.shape[0] - rest.shape[0]))
            product = torch.cat([product, rest.movedim(-1, 0)], -1)
    return product.sum((0, -1))


def _multiply(a: Tensor, b: Tensor, k: int) -> Tensor:
    """Products of polynomials along dimension 0, truncated to k coefficients; all are positive."""
    reverse = b.flip(0)
    coefficients = []
    for degree in range(min(k, a.shape[0] + b.shape[0] - 1)):
        low, high = max(0, degree - b.shape[0] + 1), min(degree + 1, a.shape[0])
        offset = b.shape[0] - 1 - degree
        coefficients.append((a[low:high] * reverse[low + offset : high + offset]).sum(0))
    return torch.stack(coefficients)
