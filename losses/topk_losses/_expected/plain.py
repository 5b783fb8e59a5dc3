"""The expected k-th largest of independent Gaussians in torch: quadrature of a Poisson-binomial tail.

It works with autograd, ``vmap`` and ``torch.compile``; :func:`~topk_losses.operators.expected_topk` has the formula.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

__all__ = ["below_largest", "relative"]

TAIL = 1e-12  # probability outside the window of integration, at each end
COARSE_NODES = 49  # nodes of the search for the window
NODES = 64  # nodes of the trapezoid rule
BUDGET = 1 << 18  # numbers in an intermediate result, rows × classes × nodes: 2 MiB, which fit into the cache
CUDA_BUDGET = 1 << 22  # the same on a GPU, where starting a piece's hundreds of kernels takes long: 32 MiB
COMPILED_BUDGET = 1 << 24  # the same in a compiled graph, which unrolls every piece: fewer pieces, 128 MiB


def below_largest(scores: Tensor, k: int, epsilon: float) -> Tensor:
    """The expectation minus the largest score, which is treated as a constant: ``(N, L)`` to ``(N,)``, float64."""
    top = scores.topk(k, dim=1).values
    valid = (top[:, :1].detach() < torch.inf) & (top[:, -1:].detach() > -torch.inf)
    largest, hard = top[:, 0].detach(), top[:, -1]
    masked = hard.detach() == -torch.inf
    if epsilon == 0:
        return torch.where(masked, hard.detach(), hard.double() - largest)
    centre = hard.detach().double()
    # Classes 40 ε away from the k-th score are certainly below or above the whole window.
    distances = ((scores.double() - centre.unsqueeze(1)) / epsilon).clamp(-40, 40).masked_fill(~valid, 0)
    shift = centre - largest + epsilon * _rank_mean(distances, k)
    return torch.where(valid.squeeze(1), shift, hard.detach())


def relative(scores: Tensor, labels: Tensor | None, k: int, epsilon: float) -> Tensor:
    """The expectation minus the score of one label per row ``(N, 1)``, or :func:`below_largest`: float64 ``(N,)``."""
    below = below_largest(scores, k, epsilon)
    if labels is None:
        return below
    return below - (scores.gather(1, labels).double() - scores.detach().amax(1, keepdim=True)).squeeze(1)


def _rank_mean(rows: Tensor, k: int) -> Tensor:
    """The expected k-th largest of ``N(x_i, 1)``, ``(N, L)`` to ``(N,)``; the k-th largest x_i is 0."""
    if 2 * k > rows.shape[1] + 1:  # the k-th largest is the (L - k + 1)-th smallest, a shorter polynomial
        return -_mean_of(-rows, rows.shape[1] - k + 1)
    return _mean_of(rows, k)


def _mean_of(rows: Tensor, k: int) -> Tensor:
    mean: Tensor = (_RankMean if torch.compiler.is_compiling() else _ForwardRankMean).apply(rows, k)
    return mean


def _probabilities_of(rows: Tensor, k: int) -> Tensor:
    function = _RankProbabilities if torch.compiler.is_compiling() else _ForwardRankProbabilities
    slope: Tensor = function.apply(rows, k)
    return slope


class _RankMean(torch.autograd.Function):
    """The mean of the k-th largest of ``N(x_i, 1)``, ``(M, L)`` to ``(M,)``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, k: int) -> Tensor:
        return torch.cat([_mean(piece, k) for piece in _pieces(rows)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], _output: Tensor) -> None:
        _remember(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.unsqueeze(-1) * _probabilities_of(ctx.saved_tensors[0], ctx.k), None


class _ForwardRankMean(_RankMean):
    """The same with forward mode, which ``torch.compile`` does not trace."""

    @staticmethod
    def jvp(ctx: Any, along: Tensor, _: None) -> Tensor:
        return (_probabilities_of(ctx.saved_tensors[0], ctx.k) * along).sum(-1)


class _RankProbabilities(torch.autograd.Function):
    """The probability of each class to be the k-th largest, ``(M, L)``: the derivative of the mean."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, k: int) -> Tensor:
        return torch.cat([_slope(piece, k) for piece in _pieces(rows)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], _output: Tensor) -> None:
        _remember(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor, None]:
        return _curvature(ctx.saved_tensors[0], direction, ctx.k), None


class _ForwardRankProbabilities(_RankProbabilities):
    """The same with forward mode."""

    @staticmethod
    def jvp(ctx: Any, along: Tensor, _: None) -> Tensor:
        return _curvature(ctx.saved_tensors[0], along, ctx.k)


def _remember(ctx: Any, rows: Tensor, k: int) -> None:
    ctx.save_for_backward(rows)
    if not torch.compiler.is_compiling():
        ctx.save_for_forward(rows)
    ctx.k = k


def _budget(x: Tensor) -> int:
    if torch.compiler.is_compiling():
        return COMPILED_BUDGET
    return CUDA_BUDGET if x.is_cuda else BUDGET


def _pieces(rows: Tensor) -> tuple[Tensor, ...]:
    if not isinstance(rows.shape[0], int):  # a graph for any number of rows has one piece
        return (rows,)
    return torch.split(rows, max(1, _budget(rows) // (rows.shape[1] * NODES)))


def _mean(x: Tensor, k: int) -> Tensor:
    end, step, parts = _grid(x, k)
    # The trapezoid rule takes half of the ends, where F is 0 and 1: hence step / 2.
    area = step * sum(_cdf(x, nodes, k).sum(1) for nodes in parts)
    return end + step / 2 - area


def _slope(x: Tensor, k: int) -> Tensor:
    _, step, parts = _grid(x, k)
    slopes: list[Tensor] = [torch.func.grad(_total)(x, nodes, k) for nodes in parts]
    return -step.unsqueeze(1) * sum(slopes)


def _curvature(rows: Tensor, direction: Tensor, k: int) -> Tensor:
    """The second derivative, which is symmetric, times a direction, by forward over reverse mode."""
    curves = []
    for x, along in zip(_pieces(rows), _pieces(direction), strict=True):
        _, step, parts = _grid(x, k)
        slopes = (partial(torch.func.grad(_total), nodes=nodes, k=k) for nodes in parts)
        curves.append(-step.unsqueeze(1) * sum(torch.func.jvp(slope, (x,), (along,))[1] for slope in slopes))
    return torch.cat(curves)


def _total(x: Tensor, nodes: Tensor, k: int) -> Tensor:
    return _cdf(x, nodes, k).sum()


def _grid(x: Tensor, k: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """The end of the window ``(M,)``, the step ``(M,)``, and the nodes ``(M, T)`` in pieces along T."""
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
    return torch.split(nodes, max(1, _budget(x) // x.shape[1]), -1)


def _cdf(x: Tensor, nodes: Tensor, k: int) -> Tensor:
    """``P(X_[k] <= t)``, i.e. that at most k - 1 classes exceed t, for x ``(M, L)`` and t ``(M, T)``: ``(M, T)``."""
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
    """Products of polynomials along dimension 0, truncated to k coefficients, all positive."""
    reverse = b.flip(0)
    coefficients = []
    for degree in range(min(k, a.shape[0] + b.shape[0] - 1)):
        low, high = max(0, degree - b.shape[0] + 1), min(degree + 1, a.shape[0])
        offset = b.shape[0] - 1 - degree
        coefficients.append((a[low:high] * reverse[low + offset : high + offset]).sum(0))
    return torch.stack(coefficients)
