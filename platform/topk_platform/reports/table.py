"""The comparison table: selected on validation, told of the test set, over fresh seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from topk_platform.identity import environment_of
from topk_platform.records import ArmHistory, Row, Tally
from topk_platform.reports.statistics import Estimate, estimate, paired_difference
from topk_platform.specs import Arm, Phase, Published, Scalar, Study

__all__ = ["Cell", "Choice", "Fruitless", "Table", "build_table"]


Mark = Literal["", "better", "worse"]


@dataclass(frozen=True)
class Cell:
    """One row in one column by one metric.

    Args:
        value: Mean test metric over the seeds that were completed; None where there is none.
        difference: To the baseline, paired by seed; None for the baseline itself.
        best: Whether no other cell has a higher mean in this column; never where a seed diverged or failed.
        published: What a paper printed for it, in percent.
        confirmed: How its seeds ended.
        searched: How its search trials ended.
        mark: Whether it is better or worse than the baseline by more than seeds explain. What diverged or failed
            would have been worse than what is left: with such seeds it is never better, and never worse than a
            baseline that has them.
    """

    value: Estimate | None
    difference: Estimate | None = None
    best: bool = False
    published: Published | None = None
    confirmed: Tally = field(default_factory=Tally)
    searched: Tally = field(default_factory=Tally)
    mark: Mark = ""


@dataclass(frozen=True)
class Choice:
    """The configuration that an arm's search chose.

    Args:
        values: The best search trial's values.
        validation: Its validation metric.
        trials: How many search trials ended.
        stopped: How many of them were pruned, diverged or failed.
    """

    values: Mapping[str, Scalar]
    validation: float
    trials: int
    stopped: int


@dataclass(frozen=True)
class Fruitless:
    """An arm without a result that will not have one: all trials of a phase have ended and none was completed.

    Args:
        arm: Its name.
        phase: ``"search"``, so that there is no configuration to confirm, or ``"confirm"``.
        ends: How the phase's trials ended.
        key: The first of them.
        reason: Why that one ended so.
    """

    arm: str
    phase: Phase
    ends: Tally
    key: str
    reason: str


@dataclass(frozen=True)
class Table:
    """A study's results.

    Args:
        study: The study.
        rows: Row names: losses, or model and loss where the study has several regimes and several models.
        columns: Column names: regimes, or models where the study has several models in a single regime.
        cells: By row, column and metric; missing where there is nothing to tell: neither a number nor why there is
            none.
        choices: By row and column.
        failures: Keys, arms and reasons of failed trials.
        fruitless: The arms that ended without a result.
        outdated: How many recorded trials of these arms do not count, by the reason.
        environments: How many of the trials that count were made in which environment, where there are several.
        across: What the columns are, ``"regime"`` or ``"model"``.
        confirmations: The ended confirmations' ledger rows by seed, by row and column.
    """

    study: Study
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]
    choices: Mapping[tuple[str, str], Choice]
    failures: tuple[tuple[str, str, str], ...] = ()
    fruitless: tuple[Fruitless, ...] = ()
    outdated: Mapping[str, int] = field(default_factory=dict)
    environments: Mapping[str, int] = field(default_factory=dict)
    across: str = "regime"
    confirmations: Mapping[tuple[str, str], Mapping[int, Row]] = field(default_factory=dict)

    @property
    def confirmed(self) -> Tally:
        """How all confirmations ended."""
        return Tally.of(row["status"] for rows in self.confirmations.values() for row in rows.values())


Place = tuple[str, str, str]
"""Row, column and metric."""


@dataclass(frozen=True)
class _Runs:
    """The runs of an arm that a table is made of: its confirmations by seed, and its search trials."""

    confirmations: Mapping[int, Row] = field(default_factory=dict)
    searched: Tally = field(default_factory=Tally)

    @property
    def confirmed(self) -> Tally:
        return Tally.of(row["status"] for row in self.confirmations.values())

    @property
    def fruitless(self) -> bool:
        """Whether all that ended of the last phase ended without a result."""
        last = self.confirmed if self.confirmations else self.searched
        return last.ended > 0 and not last.completed

    def values(self, metric: str) -> dict[int, float]:
        """Return the metric by seed; a regime may lack a group of classes, and its metrics with it."""
        completed = {s: row for s, row in self.confirmations.items() if row["status"] == "completed"}
        values = {seed: row[f"test.{metric}"] for seed, row in completed.items()}
        return {seed: value for seed, value in values.items() if value is not None}


def build_table(
    study: Study, histories: Mapping[str, ArmHistory], only: Sequence[Arm] | None = None
) -> Table:
    """Return the table of what the ledger holds of the study.

    Args:
        study: Says which arms, how many trials and which metrics.
        histories: Each arm's history, by identity.
        only: The arms to show, with the numbers and marks that they have among all; by default all.
    """
    across = _across(study)
    places = {
        arm_id: _row_and_column(study, across, history.arm)
        for arm_id, history in histories.items()
        if only is None or history.arm in only
    }
    runs = {arm_id: _runs(study, history) for arm_id, history in histories.items()}
    shown = {arm_id: histories[arm_id] for arm_id in places}
    cells = _cells(study, histories, runs, across)
    return Table(
        study=study,
        rows=tuple(dict.fromkeys(row for row, _ in places.values())),
        columns=tuple(dict.fromkeys(column for _, column in places.values())),
        cells={place: cell for place, cell in cells.items() if place[:2] in places.values()},
        choices={places[i]: found for i, h in shown.items() if (found := _choice(h, study.trials))},
        failures=tuple(_failures(shown)),
        fruitless=tuple(filter(None, (_fruitless(study, history) for history in shown.values()))),
        outdated=sum((history.outdated for history in shown.values()), Counter()),
        environments=_environments(shown),
        across=across,
        confirmations={place: runs[arm_id].confirmations for arm_id, place in places.items()},
    )


def _runs(study: Study, history: ArmHistory) -> _Runs:
    searched = Tally.of(row["status"] for row in history.searched(study.trials))
    return _Runs(history.confirmations(study.trials, study.seeds), searched)


def _baselines(study: Study, histories: Mapping[str, ArmHistory]) -> dict[str, str]:
    """Return whom each arm is compared with, by identity: the baseline of its regime and model, never itself."""
    arms = {arm_id: history.arm for arm_id, history in histories.items()}
    named = {(a.regime.name, a.model.label): i for i, a in arms.items() if a.loss.label == study.baseline}
    found = {i: named.get((arm.regime.name, arm.model.label)) for i, arm in arms.items()}
    return {i: other for i, other in found.items() if other is not None and other != i}


def _cells(
    study: Study, histories: Mapping[str, ArmHistory], runs: Mapping[str, _Runs], across: str
) -> dict[Place, Cell]:
    baselines = _baselines(study, histories)
    cells = {}
    for arm_id, history in histories.items():
        row, column = _row_and_column(study, across, history.arm)
        theirs = runs[baselines[arm_id]] if arm_id in baselines else _Runs()
        for metric in study.accuracies:
            cell = _cell(runs[arm_id], theirs, metric, study.published_of(history.arm, metric))
            if cell.value is not None or cell.published is not None or runs[arm_id].fruitless:
                cells[row, column, metric] = cell
    return _with_best(cells)


def _cell(ours: _Runs, theirs: _Runs, metric: str, published: Published | None) -> Cell:
    values = ours.values(metric)
    difference = paired_difference(values, theirs.values(metric))
    return Cell(
        value=estimate(list(values.values())),
        difference=difference,
        published=published,
        confirmed=ours.confirmed,
        searched=ours.searched,
        mark=_mark(difference, ours.confirmed, theirs.confirmed),
    )


def _mark(difference: Estimate | None, ours: Tally, theirs: Tally) -> Mark:
    if difference is None or not difference.excludes_zero:
        return ""
    if difference.mean > 0:
        return "" if ours.lost else "better"
    return "" if theirs.lost else "worse"


def _with_best(cells: Mapping[Place, Cell]) -> dict[Place, Cell]:
    sound = {
        place: cell.value.mean
        for place, cell in cells.items()
        if cell.value is not None and not cell.confirmed.lost
    }
    top: dict[tuple[str, str], float] = {}
    for (_, column, metric), mean in sound.items():
        top[column, metric] = max(mean, top.get((column, metric), mean))
    return {
        place: replace(cell, best=place in sound and sound[place] == top[place[1:]])
        for place, cell in cells.items()
    }


def _across(study: Study) -> str:
    """Return what the columns are: a single regime's would be one long column, so its models stand side by side."""
    regimes, models = ({arm.regime.name for arm in study.arms}, {arm.model.label for arm in study.arms})
    return "model" if len(regimes) == 1 and len(models) > 1 else "regime"


def _row_and_column(study: Study, across: str, arm: Arm) -> tuple[str, str]:
    if across == "model":
        return arm.loss.label, arm.model.label
    several = len({other.model.label for other in study.arms}) > 1
    return f"{arm.model.label}/{arm.loss.label}" if several else arm.loss.label, arm.regime.name


def _choice(history: ArmHistory, trials: int) -> Choice | None:
    chosen = history.best(trials) if history.arm.searches else None
    if chosen is None:
        return None
    tally = Tally.of(row["status"] for row in history.searched(trials))
    return Choice(chosen.values, chosen.objective, tally.ended, tally.ended - tally.completed)


def _environments(histories: Mapping[str, ArmHistory]) -> Mapping[str, int]:
    rows = (row for history in histories.values() for row in history.rows())
    found = Counter(environment_of(row) for row in rows)
    return found if len(found) > 1 else {}


def _fruitless(study: Study, history: ArmHistory) -> Fruitless | None:
    confirmed = list(history.confirmations(study.trials, study.seeds).values())
    rows = confirmed or history.searched(study.trials)
    if len(rows) < (study.seeds if confirmed else study.trials):
        return None
    ends = Tally.of(row["status"] for row in rows)
    first = min(rows, key=lambda row: (row["number"], row["seed"]))
    phase: Phase = "confirm" if confirmed else "search"
    return None if ends.completed else Fruitless(history.arm.name, phase, ends, first["key"], first["reason"])


def _failures(histories: Mapping[str, ArmHistory]) -> list[tuple[str, str, str]]:
    return [
        (row["key"], history.arm.name, row["reason"])
        for history in histories.values()
        for row in history.rows()
        if row["status"] == "failed"
    ]
