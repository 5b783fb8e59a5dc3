r"""The expected k-th largest of independent Gaussians, and the probability of each to be it: for long rows on the CPU.

Scores are in units of ε, the largest first. With ``p_i(t) = P(X_i > t)`` a sweep over the classes keeps, for every node
t, the probabilities of exactly m < k exceedances so far,

    A_i(m) = (1 - p_i) A_{i-1}(m) + p_i A_{i-1}(m - 1),        F(t) = P(X_[k] <= t) = Σ_m A_L(m),

and the value is an integral of F. A sweep from the other end, ``S_i(m) = P(exactly k - 1 - m of the classes after i
exceed)``, gives the probability that i is the k-th largest, ``∫ φ(t - x_i) Σ_m A_{i-1}(m) S_i(m) dt``. Both sweeps
take means of probabilities, so that no error grows. Nothing is done for a class at nodes that it cannot exceed.

*Classes.* Let a be a score that at least k classes reach. A class at x_i is the k-th largest, or its absence would
change which class is, only if X_i beats one of k classes from a upwards, which has at most the probability
``k Φ((x_i - a) / √2)``. Left out are those with ``x_i < a - √2 Φ⁻¹(1 - δ / (k L))``: at most δ for all together.

*Window.* ``P(X_[k] <= t) <= k Φ(t - x_[k])`` and ``P(X_[k] > t) <= L Φ(x_[k] - t)``: outside the window from
``x_[k] - Φ⁻¹(1 - δ/k)`` to ``x_[k] + Φ⁻¹(1 - δ/L)`` F is within δ of 0 or 1. On it stand 56 nodes, or 64 for float64
scores, with δ = 1e-8 and 1e-12. The error of the trapezoid rule for a smooth rise falls faster than any power of the
nodes' distance, so that it is far smaller than the difference of the means by every other node. Where this exceeds
1e-6, or 1e-9, F rises steeply somewhere: nine nodes narrow the window down to the outermost ones between which F leaves
``[δ, 1 - δ]``, until no row's window shrinks below 3/5, and as long as the means still differ the nodes are doubled.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._candidates import Groups, above, slots

__all__ = ["RankMean", "rank_mean"]

MOST_NODES = 2**12
COARSE_NODES = 9
SHRINKING = 0.6
BUDGET = 2**23  # numbers in the table of A
MANY = 256  # classes that crowd so that F rises steeply


class Rule(NamedTuple):
    """How precise the quadrature is."""

    tail: float
    """δ."""
    nodes: int
    """Of the first grid, an even number."""
    tolerance: float
    """Of the difference of the means by every other node."""
    noise: float
    """Noise that is as good as impossible."""
    dtype: torch.dtype
    """Of the tail probabilities. The sweeps are in float64: products of them are soon denormal in float32, and slow."""


class RankMean(NamedTuple):
    """The expected k-th largest."""

    shift: Tensor
    """From the row's centre, in units of ε ``(N,)``, float64."""
    classes: Tensor
    """Those that can be the k-th largest ``(M, N)``; any class where a row has fewer."""
    probabilities: Tensor
    """With which they are ``(M, N)``; 0 there."""


def rank_mean(scores: Tensor, groups: Groups, k: int, epsilon: float, with_slope: bool) -> RankMean:
    """The expected k-th largest of ``N(s_i, ε²)`` for scores ``(N, L)`` in groups, all centres being finite."""
    single = scores.dtype == torch.float32
    rule = Rule(1e-8, 56, 1e-6, 6.5, torch.float32) if single else Rule(1e-12, 64, 1e-9, 8.2, torch.float64)
    reach = math.sqrt(2) * _quantile(rule.tail / (k * scores.shape[1]))
    x, classes = _candidates(groups, epsilon, reach)
    shift = torch.empty(len(scores), dtype=torch.float64)
    probabilities = torch.empty_like(x)
    rows = max(1, BUDGET // (len(x) * k * rule.nodes))
    for first in range(0, len(scores), rows):
        part = slice(first, first + rows)
        shift[part], probabilities[:, part] = _row_means(x[:, part], k, rule, with_slope)
    return RankMean(shift, classes, probabilities)


def _row_means(x: Tensor, k: int, rule: Rule, with_slope: bool) -> tuple[Tensor, Tensor]:
    """Mean ``(n,)`` and probabilities ``(M, n)`` of the k-th largest for descending scores ``(M, n)``."""
    start = x[k - 1] - _quantile(rule.tail / k)
    end = x[k - 1] + _quantile(rule.tail / max(2, len(x)))
    mean, probabilities = torch.empty_like(start), torch.empty_like(x)
    rows, count = torch.arange(len(start)), rule.nodes
    if len(x) > MANY:
        start, end = _window(x, k, start, end, rule)
    while True:
        grid = Grid(x[:, rows], start, end, count, rule)
        mean[rows], probabilities[:, rows], error = _integrals(grid, k, with_slope)
        steep = error > rule.tolerance
        if not steep.any() or count >= MOST_NODES:
            return mean, probabilities
        rows, start, end, count = rows[steep], start[steep], end[steep], 2 * count
        if count == 2 * rule.nodes and len(x) <= MANY:
            start, end = _window(x[:, rows], k, start, end, rule)


def _quantile(tail: float) -> float:
    """``Φ⁻¹(1 - tail)``."""
    return -NormalDist().inv_cdf(tail)


def _candidates(groups: Groups, epsilon: float, reach: float) -> tuple[Tensor, Tensor]:
    """Scores from the centre in units of ε, descending, -inf at the end, and their classes, ``(M, N)`` both."""
    rows, classes, scores = above(groups, groups.centre - epsilon * reach)
    counts = torch.bincount(rows, minlength=len(groups.centre))
    table = torch.full((len(counts), int(counts.max())), -torch.inf, dtype=torch.float64)
    names = torch.zeros(table.shape, dtype=torch.int64)
    cell = slots(rows, counts).add_(rows, alpha=table.shape[1])
    table.view(-1).scatter_(0, cell, (scores.double() - groups.centre.index_select(0, rows)).div_(epsilon))
    names.view(-1).scatter_(0, cell, classes)
    table, order = table.sort(dim=1, descending=True)
    return table.t().contiguous(), names.gather(1, order).t()


class Grid:
    """Tail probabilities of every class at the nodes that it can exceed, the least nodes first."""

    def __init__(self, x: Tensor, start: Tensor, end: Tensor, count: int, rule: Rule) -> None:
        self.x, self.end, self.count = x, end, count
        self.step = (end - start) / (count - 1)
        reached = ((x + rule.noise - start) / self.step).floor_().amax(1).add_(1).clamp_(0, count)
        self.reached: list[int] = reached.to(torch.int64).tolist()
        """How many of the nodes each class can exceed."""
        owner = torch.arange(len(x)).repeat_interleave(torch.tensor(self.reached))
        place = torch.cat([torch.arange(number) for number in self.reached])
        nodes = start + self.step * torch.arange(count, dtype=x.dtype).unsqueeze(1)
        distances = nodes.index_select(0, place).sub_(x.index_select(0, owner)).mul_(1 / math.sqrt(2))
        self._distances = distances.to(rule.dtype).clamp_(max=9)  # beyond, float32 is denormal
        self.exceed = torch.split(torch.erfc(self._distances).to(x.dtype).mul_(0.5), self.reached)

    def densities(self) -> list[Tensor]:
        """``φ(t - x_i)`` at the same nodes."""
        density = self._distances.square().neg_().exp_().mul_(1 / math.sqrt(2 * math.pi))
        return list(torch.split(density.to(self.x.dtype), self.reached))


def _integrals(grid: Grid, k: int, with_slope: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, probabilities, and how far two ways to take each apart are from one another ``(n,)``."""
    cdf, tables = _swept(grid, k, with_slope)
    # Of the ends, where F is 0 and 1, the trapezoid rule takes half.
    mean = grid.end + grid.step / 2 - grid.step * cdf.sum(0)
    error = (1 - 2 * (cdf[1::2] - cdf[::2]).sum(0)).mul_(grid.step).abs_()
    if not with_slope:
        return mean, torch.zeros_like(grid.x), error
    probabilities = _shares(grid, tables, k).mul_(grid.step)
    return mean, probabilities, torch.maximum(error, (probabilities.sum(0) - 1).abs_())


def _swept(grid: Grid, k: int, keep: bool) -> tuple[Tensor, list[Tensor]]:
    """F at the nodes ``(T, n)``, and A before each class at the nodes that it can exceed, if they are to be kept."""
    cdf = grid.x.new_empty(grid.count, grid.x.shape[1])
    sizes = [(k + 1) * number for number in (grid.count, *grid.reached)]
    parts = 2 if not keep else len(sizes)
    space = grid.x.new_empty(sum(sizes) if keep else 2 * sizes[0], grid.x.shape[1])
    spaces = torch.split(space, sizes if keep else [sizes[0]] * 2)
    columns = grid.x.shape[1]
    table = spaces[0].view(k + 1, grid.count, columns)
    table.zero_()[1] = 1
    tables = []
    for i, exceed in enumerate(grid.exceed, 1):
        reached = len(exceed)
        torch.sum(
            table[1:, reached:], 0, out=cdf[reached : table.shape[1]]
        )  # no class that follows changes these
        before = table[:, :reached]
        table = spaces[i % parts][: sizes[i]].view(k + 1, reached, columns)
        table[0] = 0
        torch.lerp(before[1:], before[:-1], exceed, out=table[1:])
        if keep:
            tables.append(before[1:])
    torch.sum(table[1:], 0, out=cdf[: table.shape[1]])
    return cdf, tables


def _shares(grid: Grid, tables: list[Tensor], k: int) -> Tensor:
    """``Σ_t φ(t - x_i) Σ_m A_{i-1}(m) S_i(m)``, ``(M, n)``; the tables are overwritten."""
    after = grid.x.new_zeros(k + 1, grid.count, grid.x.shape[1])
    after[k - 1] = 1
    following = after.clone()  # takes turns: a node that a class cannot exceed has its first value in both
    result = torch.empty_like(grid.x)
    for i, density in reversed(list(enumerate(grid.densities()))):
        old, new = after[:, : len(density)], following[:, : len(density)]
        torch.sum(tables[i].mul_(old[:-1]).sum(0).mul_(density), 0, out=result[i])
        torch.lerp(old[:-1], old[1:], grid.exceed[i], out=new[:-1])
        after, following = following, after
    return result


def _window(x: Tensor, k: int, start: Tensor, end: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Between which nodes the k-th largest lies but for δ on either side."""
    precise = rule._replace(dtype=torch.float64, noise=9.0)
    while True:
        width = end - start
        grid = Grid(x, start, end, COARSE_NODES, precise)
        cdf = _swept(grid, k, keep=False)[0]
        first = ((cdf < rule.tail).sum(0) - 1).clamp_(min=0)
        last = (cdf <= 1 - rule.tail).sum(0).clamp_(max=COARSE_NODES - 1)
        start, end = start + first * grid.step, start + last * grid.step
        if ((end - start) >= SHRINKING * width).all():
            return start, end
