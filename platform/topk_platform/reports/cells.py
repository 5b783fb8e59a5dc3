"""The cells of a table: means over the confirmed seeds, differences to the baseline, and which of them are marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from topk_platform.records import ArmHistory, Ranks, Row, Tally
from topk_platform.reports.statistics import (
    Estimate,
    ImagePart,
    accuracies,
    holm,
    image_part,
    improvement,
    interval,
    wilcoxon,
)
from topk_platform.reports.statistics.intervals import search_of
from topk_platform.specs import Published, Study, less_is_better

__all__ = ["Cell", "Mark", "ReadRanks", "Runs", "cell_of", "combined", "marked", "runs_of", "tested"]

Mark = Literal["", "better", "worse"]

ReadRanks = Callable[[Sequence[Row]], Mapping[str, Ranks]]
"""Returns the ranks of runs by key, from their ledger rows, where they were kept."""

_SAME = 1e-6  # means of the same credits, added in another order
_ALPHA = 0.05


@dataclass(frozen=True)
class Cell:
    """A table's cell: one arm by one metric.

    Args:
        value: Mean test metric over the completed seeds; None if there are none.
        difference: To the baseline, paired by seed and image; None for the baseline itself.
        best: Whether no other cell of this column has a better mean; never if a seed diverged or failed, or if the
            arm dropped out of a race.
        published: What a paper printed for it, in percent.
        confirmed: How its seeds ended.
        searched: How its search trials ended.
        mark: Whether it is significantly better or worse than the baseline: its p-value, corrected for
            the differences of all cells of this metric, is below 0.05. A seed that diverged or failed has no accuracy
            and would have lowered the mean: a cell with such seeds is never marked better, and where the baseline has
            such seeds no cell is marked worse.
        differences: The differences by seed, whose mean is ``difference``.
        stopped: Whether it dropped out of a race (:class:`~topk_platform.specs.Racing`), so that it has fewer seeds.
        improvement: The probability that one of its runs beats a run of the baseline, with independent seeds.
        p_holm: The difference's p-value, Holm-corrected; None where there is nothing to test.
        metric: Its metric, which decides the unit shown; empty for an accuracy.
    """

    value: Estimate | None
    difference: Estimate | None = None
    best: bool = False
    published: Published | None = None
    confirmed: Tally = field(default_factory=Tally)
    searched: Tally = field(default_factory=Tally)
    mark: Mark = ""
    differences: Mapping[int, float] = field(default_factory=dict)
    p_holm: float | None = None
    improvement: float | None = None
    stopped: bool = False
    metric: str = ""

    @property
    def p_wilcoxon(self) -> float | None:
        """The p-value of Wilcoxon's signed-rank test of the differences over seeds; None where there are none."""
        return wilcoxon(list(self.differences.values())) if self.differences else None


@dataclass(frozen=True)
class Runs:
    """The runs of an arm that a table uses.

    Args:
        confirmations: Ledger rows by seed.
        searched: How its search trials ended.
        searches: How often the arm was searched.
        ranks: The confirmations' ranks by seed, where kept.
        stopped: Whether it dropped out of a race.
        without_ranks: How many completed confirmations lack their ranks, if these were read.
    """

    confirmations: Mapping[int, Row] = field(default_factory=dict)
    searched: Tally = field(default_factory=Tally)
    searches: int = 1
    ranks: Mapping[int, Ranks] = field(default_factory=dict)
    stopped: bool = False
    without_ranks: int = 0

    @property
    def confirmed(self) -> Tally:
        """How the confirmations ended."""
        return Tally.of(row["status"] for row in self.confirmations.values())

    @property
    def fruitless(self) -> bool:
        """Whether all ended trials of the last phase ended without a result."""
        last = self.confirmed if self.confirmations else self.searched
        return last.ended > 0 and not last.completed

    def values(self, metric: str) -> dict[int, float]:
        """Return the metric by seed; missing where a regime lacks the metric's group of classes."""
        completed = {s: row for s, row in self.confirmations.items() if row["status"] == "completed"}
        values = {seed: row[f"test.{metric}"] for seed, row in completed.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def with_ranks(self, read: ReadRanks | None) -> Runs:
        """Return the runs with the ranks that ``read`` finds."""
        if read is None:
            return self
        completed = {s: row for s, row in self.confirmations.items() if row["status"] == "completed"}
        found = read(list(completed.values()))
        ranks = {seed: found[row["key"]] for seed, row in completed.items() if row["key"] in found}
        return replace(self, ranks=ranks, without_ranks=len(completed) - len(ranks))


def runs_of(study: Study, history: ArmHistory, last: int) -> Runs:
    """Return the runs of an arm that count.

    Args:
        study: Says how many trials and seeds there are.
        history: The arm's.
        last: The arm's last seed; before the study's where it dropped out of a race.
    """
    searched = Tally.of(row["status"] for row in history.searched(study.trials))
    confirmed = history.confirmations(study.trials, last)
    return Runs(confirmed, searched, history.arm.repeats.count, stopped=last < study.seeds)


def cell_of(ours: Runs, theirs: Runs, metric: str, published: Published | None = None) -> Cell:
    """Return the cell of an arm beside its baseline, unmarked."""
    sign = -1 if less_is_better(metric) else 1
    values, others = ([sign * v for v in runs.values(metric).values()] for runs in (ours, theirs))
    differences = sums([(1, ours), (-1, theirs)], metric)
    return Cell(
        value=combined([(1, ours)], metric, difference=False),
        difference=combined([(1, ours), (-1, theirs)], metric),
        published=published,
        confirmed=ours.confirmed,
        searched=ours.searched,
        stopped=ours.stopped,
        differences=differences,
        improvement=improvement(values, others) if differences else None,
        metric=metric,
    )


def combined(parts: Sequence[tuple[float, Runs]], metric: str, *, difference: bool = True) -> Estimate | None:
    """Return the estimate of a weighted sum of arms' means, over their common seeds, paired by seed and image.

    Args:
        parts: Weights and runs.
        metric: Of the test set.
        difference: Whether it is a difference of accuracies, and not one of them, which lies in [0, 1].
    """
    values = sums(parts, metric)
    searches = max((runs.searches for _, runs in parts), default=1)
    known = len(values) > 1 and all(values.keys() <= runs.ranks.keys() for _, runs in parts)
    of_each = known and len({parts[0][1].ranks[seed].images for seed in values}) == len(values)
    part = _image_part(values, parts, metric, searches) if known and not of_each else None
    return interval(values, part, searches=searches, difference=difference, drawn=of_each)


def sums(parts: Sequence[tuple[float, Runs]], metric: str) -> dict[int, float]:
    """Return a weighted sum of arms' test metrics by seed, for their common seeds."""
    found = [(weight, runs.values(metric)) for weight, runs in parts]
    common = set.intersection(*(set(values) for _, values in found)) if found else set()
    return {seed: sum(weight * values[seed] for weight, values in found) for seed in sorted(common)}


def _image_part(
    values: Mapping[int, float], parts: Sequence[tuple[float, Runs]], metric: str, searches: int
) -> ImagePart | None:
    """Return the images' part; None where the ranks are of other images, or of other weights than the metric's."""
    if not metric.rpartition("_")[2].startswith(("top", "autkc")):
        return None  # what is kept of an image is its rank, which does not say whether it is in a set
    found = [(weight, accuracies({s: runs.ranks[s] for s in values}, metric)) for weight, runs in parts]
    first = found[0][1]
    images = {runs.ranks[seed].images for _, runs in parts for seed in values}
    if first is None or len(images) > 1:
        return None
    _, strata, weights = first
    rows = np.zeros_like(first[0])
    for weight, scored in found:
        if scored is None or not np.array_equal(scored[2], weights):
            return None
        rows += weight * scored[0]
    means = _means(rows, strata, weights)
    if not np.allclose(means, [values[seed] for seed in sorted(values)], rtol=0, atol=_SAME):
        return None
    of_search = [search_of(seed, searches) for seed in sorted(values)] if searches > 1 else None
    if of_search is not None and len(set(of_search)) < 2:
        return None
    return image_part(rows, strata, weights, of_search)


def _means(
    rows: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    strata: np.ndarray[tuple[int], np.dtype[np.int64]],
    weights: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    each = weights / np.maximum(np.bincount(strata, minlength=len(weights)), 1)
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = rows @ each[strata]
    return found


def marked(cells: Mapping[tuple[str, str, str], tuple[Cell, Tally]]) -> dict[tuple[str, str, str], Cell]:
    """Return a table's cells with their marks, corrected over all cells of a metric, and the best of each column.

    Args:
        cells: By row, column and metric, each with how its baseline's confirmations ended.
    """
    corrected: dict[tuple[str, str, str], float] = {}
    for metric in {place[2] for place in cells}:
        family = {place: cell for place, (cell, _) in cells.items() if place[2] == metric}
        corrected |= holm(
            {p: c.difference.p for p, c in family.items() if c.difference and c.difference.n > 2}
        )
    found = {
        place: replace(cell, p_holm=corrected.get(place), mark=_mark(cell, theirs, corrected.get(place, 1.0)))
        for place, (cell, theirs) in cells.items()
    }
    return _with_best(found)


def _mark(cell: Cell, theirs: Tally, p: float) -> Mark:
    difference = cell.difference
    if difference is None or not difference.excludes_zero or p >= _ALPHA:
        return ""
    if (difference.mean > 0) != less_is_better(cell.metric):
        return "" if cell.confirmed.lost else "better"
    return "" if theirs.lost else "worse"


def tested(cells: Mapping[tuple[str, str, str], Cell]) -> dict[str, int]:
    """Return the number of test images by column, known where the intervals of its plain accuracies cover images.

    Args:
        cells: By row, column and metric.
    """
    plain = {place: cell.value for place, cell in cells.items() if place[2].startswith("top")}
    found = {p[1]: v.precision.images for p, v in plain.items() if v is not None and v.precision is not None}
    return {column: round(images) for column, images in found.items() if math.isfinite(images)}


def _with_best(cells: Mapping[tuple[str, str, str], Cell]) -> dict[tuple[str, str, str], Cell]:
    sound = {
        place: -cell.value.mean if less_is_better(place[2]) else cell.value.mean
        for place, cell in cells.items()
        if cell.value is not None and not cell.confirmed.lost and not cell.stopped
    }
    top: dict[tuple[str, str], float] = {}
    for (_, column, metric), mean in sound.items():
        top[column, metric] = max(mean, top.get((column, metric), mean))
    return {
        place: replace(cell, best=place in sound and sound[place] == top[place[1:]])
        for place, cell in cells.items()
    }
