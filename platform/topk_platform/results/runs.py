"""The runs of an arm that tables and claims are computed from, with what is usual among the arms of its column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from topk_platform.protocol import Tally
from topk_platform.records.history import ArmResults
from topk_platform.records.per_image import Ranks
from topk_platform.records.rows import Row
from topk_platform.results.intervals import means_of_searches, usual_variance
from topk_platform.specs import Study

__all__ = [
    "IMAGES",
    "Column",
    "Parts",
    "ReadRanks",
    "Runs",
    "column_of",
    "least_variance",
    "runs_of_all",
    "sums",
]

ReadRanks = Callable[[Sequence[Row]], Mapping[str, Ranks]]
"""A function that returns the ranks of runs by key, from their ledger rows, if the ranks were kept."""

Parts = Sequence[tuple[float, "Runs"]]
"""Weights and runs of arms."""

_ZERO = 1e-9

IMAGES = "test images"
"""The name of what is counted if test images do not come in groups."""


@dataclass(frozen=True)
class Column:
    """What the arms with the same data and the same network show of the spread over searches.

    Args:
        name: The regime's name and the network's label.
        levels: By metric the median over the arms of s², the variance of a search's mean.
        differences: The same of their differences to the baseline.
    """

    name: tuple[str, str]
    levels: Mapping[str, float] = field(default_factory=dict)
    differences: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Runs:
    """The runs of an arm that a table uses.

    Args:
        confirmations: Ledger rows by seed.
        searched: How its search trials ended.
        searches: How often the arm was searched; 0 if it has nothing to search.
        ranks: The confirmations' ranks by seed, where kept.
        column: The arms that share its data and its network; None if they are not known.
        without_ranks: How many completed confirmations lack their ranks; 0 if no ranks were read.
    """

    confirmations: Mapping[int, Row] = field(default_factory=dict)
    searched: Tally = field(default_factory=Tally)
    searches: int = 0
    ranks: Mapping[int, Ranks] = field(default_factory=dict)
    column: Column | None = None
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

    @property
    def test_images(self) -> tuple[int, str] | None:
        """The number of test images, or of groups of them, and their name; None if unknown."""
        first = next(iter(self.ranks.values()), None)
        if first is None:
            return None
        if first.cluster is None:
            return len(first.label), IMAGES
        return len(set(first.cluster.tolist())), first.clusters or "groups of test images"

    def values(self, metric: str) -> dict[int, float]:
        """Return the metric by completed seed; empty if the regime lacks the metric's group of classes."""
        completed = {s: row for s, row in self.confirmations.items() if row["status"] == "completed"}
        values = {seed: row[f"test.{metric}"] for seed, row in completed.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def of_seeds(self, seeds: Iterable[int]) -> Runs:
        """Return the runs with these of their seeds alone."""
        return replace(
            self, confirmations={s: self.confirmations[s] for s in seeds if s in self.confirmations}
        )

    def with_ranks(self, read: ReadRanks | None) -> Runs:
        """Return the runs with the ranks that ``read`` returns; unchanged without it."""
        if read is None:
            return self
        completed = {s: row for s, row in self.confirmations.items() if row["status"] == "completed"}
        result = read(list(completed.values()))
        ranks = {seed: result[row["key"]] for seed, row in completed.items() if row["key"] in result}
        return replace(self, ranks=ranks, without_ranks=len(completed) - len(ranks))


def runs_of_all(study: Study, results: Mapping[str, ArmResults]) -> dict[str, Runs]:
    """Return the runs of all arms that count, each with its column.

    Args:
        study: The study, which names the metrics and the baseline.
        results: Each arm's results that count, by arm ID.
    """
    columns: dict[tuple[str, str], dict[str, Runs]] = {}
    for arm_id, of_arm in results.items():
        column = of_arm.arm.regime.name, of_arm.arm.model.label
        searched = Tally.of(row["status"] for row in of_arm.searched())
        searches = of_arm.arm.repeats.count if of_arm.arm.is_searched else 0
        columns.setdefault(column, {})[arm_id] = Runs(of_arm.confirmations(), searched, searches)
    result: dict[str, Runs] = {}
    for name, arms in columns.items():
        common = column_of(study, name, {results[i].arm.loss.label: runs for i, runs in arms.items()})
        result |= {arm_id: replace(runs, column=common) for arm_id, runs in arms.items()}
    return result


def column_of(study: Study, name: tuple[str, str], runs: Mapping[str, Runs]) -> Column:
    """Return a column with the usual spreads of its arms; ``runs`` are those by the loss's label."""
    levels: dict[str, float] = {}
    differences: dict[str, float] = {}
    base = runs.get(study.baseline or "")
    searched = [arm for arm in runs.values() if arm.searches > 1]
    for metric in study.tabled if searched else ():
        levels[metric] = usual_variance([_means([(1, arm)], metric, arm.searches) for arm in searched])
        if base is not None:
            pairs = [[(1, arm), (-1, base)] for arm in runs.values() if arm is not base]
            times = searched[0].searches
            differences[metric] = usual_variance([_means(pair, metric, times) for pair in pairs])
    return Column(name, levels, differences)


def least_variance(parts: Parts, metric: str) -> float:
    """Return the least s² that is believed of a weighted sum of arms: what is usual in their columns.

    A difference has the median of its column's differences, a level that of its column's levels. Other weights scale
    it by their sum of squares, and columns add up.
    """
    columns: dict[tuple[str, str], list[tuple[float, Column]]] = {}
    for weight, runs in parts:
        if runs.column is not None:
            columns.setdefault(runs.column.name, []).append((weight, runs.column))
    result = 0.0
    for of_column in columns.values():
        squares, total = sum(w**2 for w, _ in of_column), sum(w for w, _ in of_column)
        column = of_column[0][1]
        if abs(total) < _ZERO:
            result += squares / 2 * column.differences.get(metric, 0.0)
        else:
            result += squares * column.levels.get(metric, 0.0)
    return result


def _means(parts: Parts, metric: str, searches: int) -> list[float]:
    result = means_of_searches(sums(parts, metric), searches)
    return result if len(result) == searches else []


def sums(parts: Parts, metric: str, seeds: Iterable[int] | None = None) -> dict[int, float]:
    """Return a weighted sum of arms' test metrics by seed, by default for their common seeds."""
    result = [(weight, runs.values(metric)) for weight, runs in parts]
    if seeds is None:
        seeds = sorted(set.intersection(*(set(values) for _, values in result)))
    return {seed: sum(weight * values[seed] for weight, values in result) for seed in seeds}
