"""The runs of an arm that tables and claims are computed from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from topk_platform.identity import machine_of
from topk_platform.records import ArmResults, Ranks, Row, Tally
from topk_platform.results.statistics import Luck, pooled
from topk_platform.results.statistics.intervals import means_of_searches
from topk_platform.specs import Arm, Study

__all__ = ["IMAGES", "ReadRanks", "Runs", "Unlike", "runs_of", "runs_of_all", "unlike"]

ReadRanks = Callable[[Sequence[Row]], Mapping[str, Ranks]]
"""A function that returns the ranks of runs by key, from their ledger rows, if the ranks were kept."""

Unlike = Mapping[int, tuple[str, str]]
"""The kinds of machine of an arm's run and of the baseline's, by seed, where they differ."""

IMAGES = "test images"
"""The name of what is counted if test images do not come in groups."""


@dataclass(frozen=True)
class Runs:
    """The runs of an arm that a table uses.

    Args:
        confirmations: Ledger rows by seed.
        searched: How its search trials ended.
        searches: How often the arm was searched; 0 if it has nothing to search.
        ranks: The confirmations' ranks by seed, where kept.
        luck: The luck of one of its searches by metric, estimated from all arms' searches; empty if no searches were
            repeated, or only those of this arm.
        without_ranks: How many completed confirmations lack their ranks; 0 if no ranks were read.
    """

    confirmations: Mapping[int, Row] = field(default_factory=dict)
    searched: Tally = field(default_factory=Tally)
    searches: int = 0
    ranks: Mapping[int, Ranks] = field(default_factory=dict)
    luck: Mapping[str, Luck] = field(default_factory=dict)
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
    def tested(self) -> tuple[int, str] | None:
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

    def search_means(self, metric: str) -> list[float]:
        """Return the mean over each search's seeds; empty unless there are several searches with equally many seeds."""
        values = self.values(metric)
        if self.searches < 2 or self.confirmed.lost or len(values) % self.searches:
            return []
        result = means_of_searches(values, self.searches)
        return result if len(result) == self.searches else []

    def with_ranks(self, read: ReadRanks | None) -> Runs:
        """Return the runs with the ranks that ``read`` returns; unchanged without it."""
        if read is None:
            return self
        completed = {s: row for s, row in self.confirmations.items() if row["status"] == "completed"}
        result = read(list(completed.values()))
        ranks = {seed: result[row["key"]] for seed, row in completed.items() if row["key"] in result}
        return replace(self, ranks=ranks, without_ranks=len(completed) - len(ranks))


def runs_of(results: ArmResults) -> Runs:
    """Return the runs of an arm that count.

    Args:
        results: The arm's results that count.
    """
    searched = Tally.of(row["status"] for row in results.searched())
    searches = results.arm.repeats.count if results.arm.is_searched else 0
    return Runs(results.confirmations(), searched, searches)


def runs_of_all(study: Study, results: Mapping[str, ArmResults]) -> dict[str, Runs]:
    """Return the runs of all arms that count, each with the luck of its searches.

    Args:
        study: The study, which names the metrics.
        results: Each arm's results that count, by arm identity.
    """
    by_arm = {arm_id: runs_of(arm) for arm_id, arm in results.items()}
    arms = {arm_id: arm.arm for arm_id, arm in results.items()}
    repeated = any(runs.searches > 1 for runs in by_arm.values())
    luck = {metric: _luck(arms, by_arm, metric) for metric in study.tabled if repeated}
    return {
        arm_id: replace(runs, luck={metric: of[arm_id] for metric, of in luck.items() if arm_id in of})
        for arm_id, runs in by_arm.items()
    }


def _luck(arms: Mapping[str, Arm], runs: Mapping[str, Runs], metric: str) -> dict[str, Luck]:
    """Return the luck of each arm with several searches, estimated among the arms of its regime and network."""
    columns: dict[Hashable, dict[str, list[float]]] = {}
    for arm_id, arm in arms.items():
        if means := runs[arm_id].search_means(metric):
            column = (arm.regime.name, arm.model.label, len(means), len(runs[arm_id].values(metric)))
            columns.setdefault(column, {})[arm_id] = means
    return pooled(columns)


def unlike(ours: Runs, theirs: Runs) -> Unlike:
    """Return the pairs of completed runs of two arms that were made on different kinds of machine."""
    kinds = [
        {seed: machine_of(row) for seed, row in runs.confirmations.items() if row["status"] == "completed"}
        for runs in (ours, theirs)
    ]
    return {
        seed: (kinds[0][seed], kinds[1][seed])
        for seed in sorted(kinds[0].keys() & kinds[1].keys())
        if kinds[0][seed] != kinds[1][seed]
    }
