r"""The expected k-th largest of independent Gaussians and each class's probability to be it, for long rows on the CPU.

Scores are in units of ε, sorted in descending order. With ``p_i(t) = P(X_i > t)``, a sweep over the classes keeps for
each node t the probabilities of exactly m < k exceedances so far,

    A_i(m) = (1 - p_i) A_{i-1}(m) + p_i A_{i-1}(m - 1),        F(t) = P(X_[k] <= t) = Σ_m A_L(m),

and the value is an integral of F. A sweep from the other end, ``S_i(m) = P(exactly k - 1 - m of the classes after i
exceed)``, gives the probability that i is the k-th largest, ``∫ φ(t - x_i) Σ_m A_{i-1}(m) S_i(m) dt``. Both sweeps
average probabilities, so errors do not grow. A class is skipped at nodes that it cannot exceed. If there are more than
64 candidates, only the 4 k best are swept. The sweep then starts with the distribution of the number of exceedances
among the others, the crowd; ``crowd.py`` computes this distribution and the probabilities of the crowd's classes.

*Classes.* Let a be a score that at least k classes reach. A class at x_i can be the k-th largest, or change by its
absence which class is, only if X_i exceeds one of k classes from a upwards; the probability is at most
``k Φ((x_i - a) / √2)``. Classes with ``x_i < a - √2 Φ⁻¹(1 - δ / (k L))`` are left out, with a total of at most δ.

*Window.* As ``P(X_[k] <= t) <= k Φ(t - x_[k])`` and ``P(X_[k] > t) <= L Φ(x_[k] - t)``, F is within δ of 0 or 1 outside
the window from ``x_[k] - Φ⁻¹(1 - δ/k)`` to ``x_[k] + Φ⁻¹(1 - δ/L)``. A few nodes narrow it down to the outermost nodes
between which F is inside ``[δ, 1 - δ]``. The 4 k best classes suffice for this: leaving out classes increases F, by at
most the probability that one of them exceeds t. In a crowd every eighth class represents eight. If F at the ends of the
window shows that this was misleading, the certain window is used instead.

*Nodes.* The window has 28 to 32 nodes for float32 scores (δ = 1e-8), and 64 for float64 (δ = 1e-12). With a step h,
the trapezoid rule has an error of about ``q = exp(-2 (πσ/h)²)`` on a rise of width σ, and with every second node about
its fourth root. So if the two means differ by D, due to a part of the rise with weight w, the error is
``w q = D q^¾``. For up to 64 classes the steepest part of F has a width of about 0.2, where h <= 0.4 gives
``q^¾ < 0.03``: D < 1e-4 then means an error of at most 3e-6, and far less at the usual h of 0.3. For float64, and for
more classes, D itself must be below the error allowed. If it is not, the number of nodes is doubled.

*Rounding.* For float32 scores and up to 64 classes the sweeps are in float32, the differences ``t - x_i`` and the
integral in float64. The largest errors seen over random rows were 1e-6 ε in values and 4e-7 in probabilities.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._expected.crowd import LARGEST_RANK, Crowd
from topk_losses._rows.selection import Groups, above, slots

__all__ = ["RankMean", "rank_mean"]

MOST_NODES = 2**12
COARSE_NODES = 15
SHRINKING = 0.3
OPEN = 100  # a window is too narrow if F at its ends is further than this times δ from 0 or 1
LEADING = 4  # this times k classes are swept if there is a crowd below them
MOST_IN_FLOAT32 = 64  # with more classes rounding errors add up, and float64 is used
SAMPLED = 8  # classes of a crowd per class that represents them in the search for the window
BUDGET = 2**23  # numbers in the table of A
CROWD_BUDGET = 2**19  # numbers of a crowd processed at once
LEVEL = 4  # numbers of nodes per class are rounded up to multiples of this; equal ones are swept together


class Rule(NamedTuple):
    """The precision of the quadrature."""

    tail: float
    """δ, the probability left out at each end."""
    nodes: int
    """The number of nodes of the first grid, even."""
    tolerance: float
    """The difference allowed between the means over even and odd nodes."""
    noise: float
    """Noise of this size is treated as impossible."""
    tails: torch.dtype
    """The dtype of the tail probabilities."""
    sweeps: torch.dtype
    """The dtype of the sweeps."""
    floor: float
    """A lower bound of values in the sweeps, so that products of three are not denormal numbers, which are slow."""


DOUBLE = Rule(1e-12, 64, 1e-9, 8.2, torch.float64, torch.float64, 0.0)
MIXED = Rule(1e-8, 32, 2e-6, 6.0, torch.float32, torch.float64, 0.0)
SINGLE = Rule(1e-8, 28, 1e-4, 6.0, torch.float32, torch.float32, 1e-12)


class RankMean(NamedTuple):
    """The expected k-th largest."""

    hard: Tensor
    """The k-th largest score itself ``(N,)``."""
    shift: Tensor
    """The expectation relative to it, in units of ε ``(N,)``, float64."""
    classes: Tensor
    """The classes that can be the k-th largest ``(M, N)``; padded with any class."""
    probabilities: Tensor
    """Their probabilities to be it ``(M, N)``; 0 for the padding."""


def rank_mean(scores: Tensor, groups: Groups, k: int, epsilon: float, with_slope: bool) -> RankMean:
    """The expected k-th largest of ``N(s_i, ε²)`` for scores ``(N, L)``, given their groups with finite centres."""
    rule = MIXED if scores.dtype == torch.float32 else DOUBLE
    reach = math.sqrt(2) * _quantile(rule.tail / (k * scores.shape[1]))
    x, classes, hard = _candidates(groups, k, epsilon, reach)
    if rule is MIXED and len(x) <= MOST_IN_FLOAT32:
        rule = SINGLE
    shift = scores.new_empty(len(scores), dtype=torch.float64)
    probabilities = torch.empty_like(x, dtype=rule.sweeps)
    swept = _swept_classes(len(x), k)
    rows = max(1, min(BUDGET // (swept * k * rule.nodes), CROWD_BUDGET // max(1, len(x) - swept)))
    for first in range(0, len(scores), rows):
        part = slice(first, first + rows)
        shift[part], probabilities[:, part] = _row_means(x[:, part], k, rule, with_slope)
    return RankMean(hard, shift, classes, probabilities)


def _row_means(x: Tensor, k: int, rule: Rule, with_slope: bool) -> tuple[Tensor, Tensor]:
    """Mean ``(n,)`` and probabilities ``(M, n)`` of the k-th largest for descending scores ``(M, n)``."""
    mean = torch.empty_like(x[0])
    probabilities = x.new_zeros(x.shape, dtype=rule.sweeps)
    rows, count, swept = torch.arange(x.shape[1], device=x.device), rule.nodes, _swept_classes(len(x), k)
    start, end = _window(x, k, rule)
    while True:
        here = x[:, rows] if len(rows) < x.shape[1] else x
        mean[rows], shares, error = _integrals(Grid(here, k, start, end, count, rule, swept), with_slope)
        probabilities[: len(shares), rows] = shares
        steep = error > rule.tolerance
        if not steep.any() or count >= MOST_NODES:
            return mean, probabilities
        certain, narrow = _certain_window(here, k, rule), error == torch.inf
        start, end = (torch.where(narrow, *ends)[steep] for ends in zip(certain, (start, end), strict=True))
        rows, count = rows[steep], 2 * count


def _quantile(tail: float) -> float:
    """``Φ⁻¹(1 - tail)``."""
    return -NormalDist().inv_cdf(tail)


def _swept_classes(classes: int, k: int) -> int:
    """The number of classes that are swept, the best ones."""
    crowded = k <= LARGEST_RANK and classes > max(MOST_IN_FLOAT32, 2 * LEADING * k)
    return LEADING * k if crowded else classes


def _candidates(groups: Groups, k: int, epsilon: float, reach: float) -> tuple[Tensor, Tensor, Tensor]:
    """Scores relative to the k-th largest in units of ε, descending, and classes, ``(M, N)`` each; the k-th ``(N,)``.

    Scores are padded with -inf. The groups' centre may be so far below that no float64 tells nodes around it apart.
    """
    rows, classes, scores = above(groups, groups.centre - epsilon * reach)
    counts = torch.bincount(rows, minlength=len(groups.centre))
    table = scores.new_full((len(counts), int(counts.max())), -torch.inf)
    names = classes.new_zeros(table.shape)
    cell = slots(rows, counts).add_(rows, alpha=table.shape[1])
    table.view(-1).scatter_(0, cell, scores)
    names.view(-1).scatter_(0, cell, classes)
    table, order = table.sort(dim=1, descending=True)
    hard = table[:, k - 1].clone()  # x may share the table's memory
    x = table.t().to(torch.float64, memory_format=torch.contiguous_format).sub_(hard).div_(epsilon)
    return x, names.gather(1, order).t(), hard


class Grid:
    """Nodes, and the tail probabilities of each class at the nodes that it can exceed, from the lowest node on."""

    def __init__(
        self,
        x: Tensor,
        k: int,
        start: Tensor,
        end: Tensor,
        count: int,
        rule: Rule,
        swept: int,
        weight: float = 1.0,
    ) -> None:
        self.end, self.rule, self.k = end, rule, k
        self.step = (end - start) / (count - 1)
        steps = self.step * torch.arange(count, dtype=x.dtype, device=x.device).unsqueeze(1)
        self.nodes = start + steps
        reached = ((x + rule.noise - start) / self.step).floor_().amax(1).add_(1).clamp_(0, count)
        reached = reached.to(torch.int64)
        self.swept = swept
        numbers = (reached[self.swept :].unsqueeze(1) > torch.arange(count, device=x.device)).sum(0).tolist()
        self.crowd = Crowd(x[self.swept :], self.nodes, numbers, weight, rule.tails)
        levels = (reached[: self.swept] + LEVEL - 1).div_(LEVEL, rounding_mode="floor").mul_(LEVEL)
        sizes, members = torch.unique_consecutive(levels.clamp_(max=count), return_counts=True)
        self.levels = [
            (size, number) for size, number in zip(sizes.tolist(), members.tolist(), strict=True) if size
        ]
        """Pairs of a number of nodes (above 0) and the number of classes that can exceed so many."""
        # Relative to the start, in float64, so that only small numbers are rounded to float32.
        steps = steps.div_(math.sqrt(2)).to(rule.tails)
        places = torch.split((x[: self.swept] - start).div_(math.sqrt(2)).to(rule.tails), members.tolist())
        # Distances are bounded: rows reach different nodes, and smaller probabilities would be denormal in float32.
        most = (rule.noise + 0.5) / math.sqrt(2)
        self._distances = [
            (steps[:size] - part.unsqueeze(1)).clamp_(max=most)
            for (size, _), part in zip(self.levels, places, strict=False)
        ]
        self.exceed = [torch.erfc(part).mul_(0.5).to(rule.sweeps) for part in self._distances]

    def densities(self, level: int) -> Tensor:
        """``φ(t - x_i)`` of a level's classes ``(s, nodes, n)``; may be called only once, since it overwrites."""
        density = self._distances[level].square_().neg_().exp_().mul_(1 / math.sqrt(2 * math.pi))
        return density.to(self.rule.sweeps)

    def table(self) -> Tensor:
        """A table for the probabilities of -1 to k - 1 exceedances, ``(k + 1, T, n)``, filled with the floor."""
        return self.nodes.new_full((self.k + 1, *self.nodes.shape), self.rule.floor, dtype=self.rule.sweeps)

    def tables(self) -> tuple[list[Tensor], Tensor]:
        """For each level, tables before each of its classes and after the last ``(s + 1, k + 1, nodes, n)``.

        And a flat buffer as large as the largest of these.
        """
        rows = len(self.end)
        shapes = [(number + 1, self.k + 1, size, rows) for size, number in self.levels]
        sizes = [math.prod(shape) for shape in shapes]
        # One allocation, larger than all others here, so that the allocator keeps its pages between calls.
        *space, buffers = torch.split(
            self.end.new_empty(sum(sizes) + max(sizes), dtype=self.rule.sweeps), [*sizes, max(sizes)]
        )
        tables = [part.view(shape) for part, shape in zip(space, shapes, strict=True)]
        for table in tables:
            table[:, 0] = self.rule.floor
        return tables, buffers


def _integrals(grid: Grid, with_slope: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Mean ``(n,)``, probabilities of the classes, and an error estimate ``(n,)``: inf if the window is too narrow."""
    tables, buffers = grid.tables() if with_slope else (None, None)
    total = _swept(grid, tables)
    cdf = total.sum(0).double()
    # The trapezoid rule takes half of the ends, where F is 0 and 1: hence step / 2.
    mean = grid.end + grid.step / 2 - grid.step * cdf.sum(0)
    error = (1 - 2 * (cdf[1::2] - cdf[::2]).sum(0)).mul_(grid.step).abs_()
    narrow = (cdf[0] > OPEN * grid.rule.tail) | (cdf[-1] < 1 - OPEN * grid.rule.tail)
    error = error.masked_fill_(narrow, torch.inf)
    if tables is None or buffers is None:
        return mean, total[0, :0], error
    shares = _shares(grid, tables, buffers)
    if len(grid.crowd.x):
        missing = shares.new_zeros(grid.swept - len(shares), shares.shape[1])
        shares = torch.cat([shares, missing, grid.crowd.shares(total).to(shares.dtype)])
    shares.mul_(grid.step)
    return mean, shares, torch.maximum(error, (shares.sum(0) - 1).abs_())


def _swept(grid: Grid, tables: list[Tensor] | None) -> Tensor:
    """A_L at the nodes ``(k, T, n)``; fills the tables, if given, with A before each class and after the last."""
    table = grid.table()
    table[1] = 1
    if len(grid.crowd.x):
        table[1:] = grid.crowd.counts(grid.k)
    for level, exceed in enumerate(grid.exceed):
        here = table[:, : exceed.shape[1]]
        if tables is None:
            for share in exceed.unbind(0):
                here = torch.cat([here[:1], torch.lerp(here[1:], here[:-1], share)])
        else:
            tables[level][0, 1:] = here[1:]
            below, same = tables[level][:, :-1].unbind(0), tables[level][:, 1:].unbind(0)
            for i, share in enumerate(exceed.unbind(0)):
                torch.lerp(same[i], below[i], share, out=same[i + 1])
            here = tables[level][-1]
        table[1:, : exceed.shape[1]] = here[1:]
    return table[1:]


def _shares(grid: Grid, tables: list[Tensor], buffers: Tensor) -> Tensor:
    """``Σ_t φ(t - x_i) Σ_m A_{i-1}(m) S_i(m)`` of the swept classes ``(Q, n)``; overwrites the tables."""
    after = grid.table()
    after[grid.k - 1] = 1
    results = []
    for level in reversed(range(len(tables))):
        table, exceed = tables[level], grid.exceed[level]
        here = after[:, : exceed.shape[1]]
        follow = buffers[: table.numel()].view_as(table)
        follow[:, -1] = grid.rule.floor
        follow[-1, :-1] = here[:-1]
        same, more = follow[:, :-1].unbind(0), follow[:, 1:].unbind(0)
        for i, share in reversed(list(enumerate(exceed.unbind(0)))):
            torch.lerp(same[i + 1], more[i + 1], share, out=same[i])
        here[:-1] = same[0]
        others = table[:-1, 1:].mul_(follow[1:, :-1]).sum(1)
        results.append(others.mul_(grid.densities(level)).sum(1))
    return torch.cat(results[::-1])


def _certain_window(x: Tensor, k: int, rule: Rule) -> tuple[Tensor, Tensor]:
    """Bounds that contain the k-th largest, with an error probability of at most δ on each side."""
    return x[k - 1] - _quantile(rule.tail / k), x[k - 1] + _quantile(rule.tail / max(2, len(x)))


def _window(x: Tensor, k: int, rule: Rule) -> tuple[Tensor, Tensor]:
    """Nodes between which the k-th largest lies, with an error of δ on each side; only an estimate for crowds."""
    start, end = _certain_window(x, k, rule)
    swept = _swept_classes(len(x), k)
    best, rest, weight = x, x[:0], 1.0
    if swept < len(x):
        best, weight = torch.cat([x[:swept], x[swept::SAMPLED]]), float(SAMPLED)
    elif len(x) <= MOST_IN_FLOAT32:
        best, rest = x[: LEADING * k], x[LEADING * k :]
    while True:
        width = end - start
        grid = Grid(best, k, start, end, COARSE_NODES, rule, swept, weight)
        cdf = _swept(grid, None).sum(0)
        first = ((cdf < rule.tail).sum(0) - 1).clamp_(min=0)
        if len(rest):
            cdf = cdf - torch.erfc((grid.nodes - rest[0]).div_(math.sqrt(2))).mul_(len(rest) / 2)
        last = (cdf <= 1 - rule.tail).sum(0).clamp_(max=COARSE_NODES - 1)
        start, end = start + first * grid.step, start + last * grid.step
        if ((end - start) >= SHRINKING * width).all():
            return start, end
