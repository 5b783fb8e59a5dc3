"""The k-th largest of ``s + εZ`` in many draws at once, from the noisy scores that exceed a threshold.

A draw of a row is a column. It contains the noisy scores of the classes drawn outright (the table), then the noisy
scores of other classes that exceed the threshold (points). Scores are in units of ε, relative to the row's centre. The
proof is in ``exceedances.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import torch
from torch import Tensor

from topk_losses._noised.exceedances import Threshold, exceedances, tail_probability, truncated_normal
from topk_losses._noised.kth_largest import kth_largest
from topk_losses._rows.selection import Candidates, Groups, above, slots

__all__ = ["Columns"]

COMPLETED = 2**18  # numbers computed at once when draws are completed
ALL_DISTANCES = 0.1  # from this many large noises per score on, all distances are computed in advance
OUTRIGHT = 1.5  # how far below the threshold, in units of ε, classes are still drawn outright
HIGHEST = 48  # the most classes per row in the table; if a row has more, there is no table and all are points


class Points(NamedTuple):
    """Classes outside the table that exceed the threshold."""

    columns: Tensor
    """``(E,)``, ascending."""
    classes: Tensor
    """``(E,)``."""
    values: Tensor
    """Noisy scores ``(E,)``."""


@dataclass(frozen=True)
class Columns:
    """The draws of some rows; draw b of row n is the column ``b N + n``."""

    scores: Tensor
    """``(N, L)``."""
    centre: Tensor
    """``(N,)``."""
    threshold: Threshold
    near: Candidates
    """The classes drawn outright."""
    far: Candidates
    """The leading classes below these, which are thinned separately from all others."""
    table: Tensor
    """The classes in the table ``(M, N)``; where a row has fewer, any class."""
    table_x: Tensor
    """Their scores in units of ε from the centre ``(M, N)``; -inf where a row has fewer."""
    k: int
    epsilon: float
    generator: torch.Generator | None

    @classmethod
    def of(
        cls,
        scores: Tensor,
        groups: Groups,
        threshold: Threshold,
        k: int,
        epsilon: float,
        generator: torch.Generator | None,
    ) -> Self:
        """Return the columns for rows ``(N, L)`` with their thresholds."""
        rows, classes, values = above(groups, threshold.level)
        x = (values - groups.centre.index_select(0, rows)).div_(epsilon)
        outright = x >= (threshold.height - min(OUTRIGHT, threshold.gap)).index_select(0, rows)
        near, far = _split(Candidates(rows, classes, x), outright)
        rows, classes, x = near
        counts = torch.bincount(rows, minlength=len(scores))
        highest = int(counts.max())
        shape = (highest if highest <= HIGHEST else 0, len(scores))
        table_x = x.new_full(shape, -torch.inf)
        table = classes.new_zeros(shape)
        if len(table):
            cell = slots(rows, counts).mul_(len(scores)).add_(rows)
            table_x.view(-1).scatter_(0, cell, x)
            table.view(-1).scatter_(0, cell, classes)
        return cls(scores, groups.centre, threshold, near, far, table, table_x, k, epsilon, generator)

    def draw(self, samples: int) -> tuple[Tensor, Tensor]:
        """Draw, and return the k-th largest noisy score of each draw and its class, ``(B, N)`` each."""
        near = () if len(self.table) else (self._near_points(samples),)
        points = [*near, *self._far_points(samples), *self._other_points(samples)]
        values = self._values(samples, points)
        height = kth_largest(values, self.k).clone()  # it may be a view of a row of the values
        short = (height.view(samples, -1) < self.threshold.height).flatten().nonzero().squeeze(1)
        parts = torch.split(short, max(1, COMPLETED // self.scores.shape[1])) if len(short) else ()
        completed = [self._completed(values, points, part) for part in parts]
        classes = self._classes(values, points, height)
        for part, (own_height, own_classes) in zip(parts, completed, strict=True):
            height[part], classes[part] = own_height, own_classes
        return height.view(samples, -1), classes.view(samples, -1)

    def _far_points(self, samples: int) -> Iterator[Points]:
        """Points of the leading classes that are too far below the threshold to be drawn outright, by thinning."""
        rows, classes, x = self.far
        distance = x - self.threshold.height.index_select(0, rows)
        gap = min(OUTRIGHT, self.threshold.gap)
        for places, noise in exceedances(samples * len(x), gap, self.generator) if len(x) else ():
            cell = places.to(torch.int64)
            entry = cell % len(x)
            excess = distance.index_select(0, entry).add_(noise.to(x.dtype))
            kept = (excess > 0).nonzero().squeeze(1)
            entry = entry.index_select(0, kept)
            row = rows.index_select(0, entry)
            draw = torch.div(cell.index_select(0, kept), len(x), rounding_mode="floor")
            values = excess.index_select(0, kept).add_(self.threshold.height.index_select(0, row))
            yield Points(draw.mul_(len(self.scores)).add_(row), classes.index_select(0, entry), values)

    def _near_points(self, samples: int) -> Points:
        """Points of the classes drawn outright."""
        rows, classes, x = self.near
        values = x.new_empty(samples, len(x)).normal_(generator=self.generator).add_(x)
        kept = (values > self.threshold.height.index_select(0, rows)).flatten().nonzero().squeeze(1)
        draw = torch.div(kept, len(x), rounding_mode="floor")
        entry = kept.sub(draw, alpha=len(x))
        columns = draw.mul_(len(self.scores)).add_(rows.index_select(0, entry))
        return Points(columns, classes.index_select(0, entry), values.flatten().index_select(0, kept))

    def _other_points(self, samples: int) -> Iterator[Points]:
        """Points of all other classes, by thinning."""
        rows, classes = self.scores.shape
        scores_type = self.scores.dtype
        distance = self._distances(samples)
        for places, noise in exceedances(samples * rows * classes, self.threshold.gap, self.generator):
            if not len(places):
                break
            cell = places.sub(places.div(rows * classes).floor_(), alpha=rows * classes).to(torch.int64)
            excess = distance(cell).add_(noise.to(scores_type))
            kept = (excess > 0).nonzero().squeeze(1)
            columns = places.index_select(0, kept).div_(classes).floor_().to(torch.int64)
            row = columns % rows
            own = cell.index_select(0, kept).sub_(row, alpha=classes)
            values = excess.index_select(0, kept).add_(self.threshold.height.index_select(0, row))
            yield Points(columns, own, values)

    def _distances(self, samples: int) -> Callable[[Tensor], Tensor]:
        """A function from cells to their distances above the threshold, in units of ε; -inf for leading classes."""
        classes = self.scores.shape[1]
        scores = self.scores.flatten()

        def few(cell: Tensor) -> Tensor:
            row = torch.div(cell, classes, rounding_mode="floor")
            score = scores.index_select(0, cell)
            x = (score - self.centre.index_select(0, row)).div_(self.epsilon)
            leading = score >= self.threshold.level.index_select(0, row)
            return x.sub_(self.threshold.height.index_select(0, row)).masked_fill_(leading, -torch.inf)

        if samples * tail_probability(self.threshold.gap) < ALL_DISTANCES:
            return few
        every = (self.scores - self.centre.unsqueeze(1)).div_(self.epsilon)
        every.sub_(self.threshold.height.unsqueeze(1))
        flat = every.flatten()
        for part in (self.near, self.far):
            flat.index_fill_(0, part.rows.mul(classes).add_(part.classes), -torch.inf)
        return lambda cell: flat.index_select(0, cell)

    def _values(self, samples: int, points: list[Points]) -> Tensor:
        """The columns ``(R, B·N)``: the table, and the points below it, padded with -inf."""
        columns, leading = samples * len(self.scores), len(self.table)
        counts = [torch.bincount(part.columns, minlength=columns) for part in points]
        offsets = list(accumulate(counts))
        most = int(offsets[-1].max()) if offsets else 0
        height = max(self.k, leading + most)
        values = self.scores.new_empty(height, columns)
        values[:leading].normal_(generator=self.generator)
        values[:leading].view(leading, samples, len(self.scores)).add_(self.table_x.unsqueeze(1))
        values[leading:] = -torch.inf
        for part, own, end in zip(points, counts, offsets, strict=True):
            slot = slots(part.columns, own).add_((end - own).index_select(0, part.columns)).add_(leading)
            values.view(-1).scatter_(0, slot.mul_(columns).add_(part.columns), part.values)
        return values

    def _classes(self, values: Tensor, points: list[Points], height: Tensor) -> Tensor:
        """The classes ``(B·N,)`` that have these values in their columns; the table's values are overwritten."""
        classes = (
            self._table_classes(values[: len(self.table)].eq_(height)) if len(self.table) else height.long()
        )
        for part in points:
            won = (part.values == height.index_select(0, part.columns)).nonzero().squeeze(1)
            classes.index_copy_(0, part.columns.index_select(0, won), part.classes.index_select(0, won))
        return classes

    def _table_classes(self, present: Tensor) -> Tensor:
        """The class of the entry that is 1 in each column of ``present`` ``(M, B·N)``; any class if there is none."""
        ones = present.new_ones(len(present))
        ranks = torch.stack([ones, ones.cumsum(0) - 1]) @ present
        several = ranks[0] > 1  # equal values: take the first one
        if several.any():
            ranks[1, several] = present[:, several].argmax(0).to(present.dtype)
        return self.table.gather(0, ranks[1].to(torch.int64).view(-1, len(self.scores))).flatten()

    def _completed(self, values: Tensor, points: list[Points], draws: Tensor) -> tuple[Tensor, Tensor]:
        """Complete draws with fewer than k values above the threshold: draw the others given that they are below."""
        row = draws % len(self.scores)
        height = self.threshold.height[row].unsqueeze(1)
        x = (self.scores[row] - self.centre[row].unsqueeze(1)).div_(self.epsilon)
        full = torch.minimum(truncated_normal(height - x, self.generator).to(x.dtype).add_(x), height)
        entry, line = (values[: len(self.table), draws] > height.squeeze(1)).nonzero(as_tuple=True)
        full[line, self.table[entry, row[line]]] = values[entry, draws[line]]
        lines = draws.new_full((values.shape[1],), -1)
        lines[draws] = torch.arange(len(draws), device=draws.device)
        for part in points:
            line = lines[part.columns]
            full[line[line >= 0], part.classes[line >= 0]] = part.values[line >= 0]
        best, classes = full.topk(self.k)
        return best[:, -1], classes[:, -1]


def _split(candidates: Candidates, first: Tensor) -> tuple[Candidates, Candidates]:
    """The candidates for which ``first`` is true, and the others."""
    parts = (first.nonzero().squeeze(1), first.logical_not().nonzero().squeeze(1))
    chosen, other = (Candidates(*(values.index_select(0, part) for values in candidates)) for part in parts)
    return chosen, other
