"""The k-th largest of ``s + εZ`` in many draws: leading classes outright, of the others what exceeds a threshold.

Scores are taken in units of ε, relative to the row's k-th largest one. Draws are columns, those of a row one after
another. ``_exceedances.py`` proves that thresholds and the number of leading classes leave the distribution alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._exceedances import complete, heights, place_points, rates
from topk_losses._kth_largest import kth_distinct, kth_largest

__all__ = ["FRINGE", "KthLargest"]

FRINGE = 26  # classes after the k largest whose rates are looked at one by one
DEPTH = 3.2  # of the threshold below the k-th largest score: it alone falls deeper in 0.07 % of the draws
POINT_COST = 60.0  # of a point, in units of a normal draw and its part in the selection
PROPOSALS = 0.2  # per draw; if there are more, the rates of all classes are worth a table
LEADING_RATE = 0.5  # from here on the points of one class are too many
COLUMNS = 64  # classes that stand for all in the search for the threshold
STEPS = 5  # of Newton's method for it
COMPLETED = 2**19  # numbers at once of the draws that fell short


class Points(NamedTuple):
    """What exceeds the threshold."""

    owner: Tensor
    """The draw of each point ``(E,)``, ascending."""
    classes: Tensor
    """``(E,)``."""
    heights: Tensor
    """``(E,)``."""


@dataclass(frozen=True)
class KthLargest:
    """The rows, their largest scores, and how they are to be drawn."""

    scores: Tensor
    """``(N, L)``."""
    centre: Tensor
    """The k-th largest of them ``(N, 1)``."""
    epsilon: float
    best: Tensor
    """The largest scores in units of ε from the centre ``(N, T)``, descending."""
    best_classes: Tensor
    """``(N, T)``."""
    k: int
    samples: int
    generator: torch.Generator | None

    def draw(self) -> tuple[Tensor, Tensor] | None:
        """Height and class of the k-th largest of each draw ``(N·B,)``, or None where that would not save work."""
        rate = rates(-DEPTH - self.best)
        beyond = rate[:, -1:] * self.scores.shape[1]  # as if every class were as large as the least one known
        if beyond.mean().item() <= PROPOSALS:
            return self._spread(rate, beyond)
        return self._crowded()

    def _spread(self, rate: Tensor, beyond: Tensor) -> tuple[Tensor, Tensor]:
        leading = self._cheapest(rate, beyond)
        values = self._leading_values(leading)
        height = kth_largest(values, self.k)
        place = self._places(values, height)
        points = self._few_points(rate, beyond, leading)
        threshold = self.centre.new_full(self.centre.shape, -DEPTH)
        return self._settle(height, place, values, points, threshold)

    def _cheapest(self, rate: Tensor, beyond: Tensor) -> int:
        """How many classes to draw outright, k at least: each costs a draw and spares its points."""
        points = (rate.sum(0).flip(0).cumsum(0).flip(0) + beyond.sum()) * (POINT_COST / len(rate))
        costs = points[self.k :] + torch.arange(self.k, rate.shape[1], dtype=points.dtype)
        return self.k + int(costs.argmin())

    def _leading_values(self, leading: int) -> Tensor:
        """``(M, N·B)``."""
        shape = (leading, len(self.best), self.samples)
        noise = torch.randn(shape, generator=self.generator, dtype=self.best.dtype)
        return noise.add_(self.best[:, :leading].t().unsqueeze(2)).flatten(1)

    def _places(self, values: Tensor, height: Tensor) -> Tensor:
        """The classes ``(N·B,)`` whose values these are."""
        rank = torch.zeros(height.shape, dtype=torch.int64)
        for i, value in enumerate(values[1:].unbind(0), 1):
            rank.masked_fill_(value == height, i)
        return self.best_classes.gather(1, rank.view(-1, self.samples)).flatten()

    def _few_points(self, rate: Tensor, beyond: Tensor, leading: int) -> Points:
        """Points of the classes known, and, proposed at the rate of the least of these, of all the others."""
        table = torch.cat([rate[:, leading:], beyond], 1)
        owner, cell = place_points(table, self.samples, self.generator)
        row, column = owner // self.samples, cell % table.shape[1] + leading
        known = column < rate.shape[1]
        column = column.clamp(max=rate.shape[1] - 1)
        others = torch.randint(self.scores.shape[1], column.shape, generator=self.generator)
        classes = torch.where(known, self.best_classes[row, column], others)
        own_rate = torch.where(known, rate[row, column], rates(-DEPTH - self._distances(row, classes)))
        twice = ~known & (self.best_classes[row] == classes.unsqueeze(1)).any(1)
        uniform = torch.rand(column.shape, generator=self.generator, dtype=own_rate.dtype)
        kept = (uniform * rate[row, column] < own_rate) & ~twice
        owner, row, classes = owner[kept], row[kept], classes[kept]
        return Points(owner, classes, self._heights(row, classes, own_rate[kept]))

    def _distances(self, row: Tensor, classes: Tensor) -> Tensor:
        return (self.scores[row, classes] - self.centre[row, 0]).div_(self.epsilon)

    def _heights(self, row: Tensor, classes: Tensor, rate: Tensor) -> Tensor:
        return self._distances(row, classes).add_(heights(rate, self.generator))

    def _crowded(self) -> tuple[Tensor, Tensor] | None:
        threshold = self._threshold()
        leading = int((rates(threshold - self.best) > LEADING_RATE).sum(1).max())
        gaps = (self.scores - self.centre).mul_(-1 / self.epsilon).add_(threshold)
        table = rates(gaps).scatter_(1, self.best_classes[:, :leading], 0)
        if not leading + table.sum().item() / len(table) < table.shape[1] / 8:
            return None
        values = self._leading_values(leading)
        owner, cell = place_points(table, self.samples, self.generator)
        row, classes = owner // self.samples, cell % table.shape[1]
        points = Points(owner, classes, self._heights(row, classes, table.flatten()[cell]))
        height = self.best.new_full((values.shape[1],), -torch.inf)
        return self._settle(height, torch.zeros(height.shape, dtype=torch.int64), values, points, threshold)

    def _threshold(self) -> Tensor:
        """About where ``k + 3 sqrt(k) + 2`` classes are expected to exceed it, ``(N, 1)``."""
        classes = self.scores.shape[1]
        sample = (self.scores[:, :: max(1, classes // COLUMNS)] - self.centre).div_(self.epsilon)
        weight = (classes - self.best.shape[1]) / sample.shape[1]
        sample = sample.masked_fill_(sample >= self.best[:, -1:], -torch.inf)
        wanted = math.log(self.k + 3 * math.sqrt(self.k) + 2)
        threshold = torch.zeros_like(self.centre)
        for _ in range(STEPS):
            number, density = torch.zeros_like(threshold), torch.zeros_like(threshold)
            for x, share in ((self.best, 1.0), (sample, weight)):
                gaps = threshold - x
                density += share * gaps.square().mul_(-0.5).exp_().sum(1, keepdim=True)
                number += share * gaps.mul_(1 / math.sqrt(2)).erfc_().sum(1, keepdim=True)
            slope = density / number * math.sqrt(2 / math.pi)
            step = (number.mul_(0.5).log_() - wanted) / slope
            threshold = threshold + step.nan_to_num_(0.0).clamp_(-2.5, 2.5)
        return threshold.clamp_(min=-DEPTH)

    def _settle(
        self, height: Tensor, place: Tensor, values: Tensor, points: Points, threshold: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Put the points among the leading classes' values, and complete the draws that fall short."""
        counts = torch.bincount(points.owner, minlength=len(height))
        touched = counts.nonzero().squeeze(1)
        if len(touched):
            height[touched], place[touched] = self._merge(values, points, counts, touched)
        short = (height.view(-1, self.samples) < threshold).flatten().nonzero().squeeze(1)
        for draws in short.split(max(1, COMPLETED // self.scores.shape[1])):
            height[draws], place[draws] = self._complete(values, points, draws, threshold)
        return height, place

    def _merge(
        self, values: Tensor, points: Points, counts: Tensor, draws: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The k-th largest, and its class, of draws that have points."""
        leading, most = len(values), int(counts.max())
        entries = values.new_full((len(draws), leading + most), -torch.inf)
        names = torch.full(entries.shape, -1)
        entries[:, :leading] = values[:, draws].t()
        names[:, :leading] = self.best_classes[draws // self.samples, :leading]
        numbers = counts[draws]
        first = numbers.cumsum(0) - numbers
        line = torch.arange(len(draws)).repeat_interleave(numbers)
        cell = line * entries.shape[1] + leading + torch.arange(len(line)) - first[line]
        entries.view(-1)[cell] = points.heights
        names.view(-1)[cell] = points.classes
        return kth_distinct(entries, names, self.k)

    def _complete(
        self, values: Tensor, points: Points, draws: Tensor, threshold: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The k-th largest of some draws, all classes that have no point being drawn below the threshold."""
        row = draws // self.samples
        x = (self.scores[row] - self.centre[row]).div_(self.epsilon)
        full = complete(x, threshold[row], self.generator)
        full.scatter_(1, self.best_classes[row, : len(values)], values[:, draws].t())
        line = torch.full((values.shape[1],), -1)
        line[draws] = torch.arange(len(draws))
        line = line[points.owner]
        own = line >= 0
        cell = line[own] * full.shape[1] + points.classes[own]
        full.view(-1).scatter_reduce_(0, cell, points.heights[own], "amax")
        best, places = full.topk(self.k)
        return best[:, -1], places[:, -1]
