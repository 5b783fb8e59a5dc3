"""The comparison table: selected on validation, told of the test set, over fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topk_platform.records import ArmHistory, Row
from topk_platform.reports.statistics import Estimate, estimate, paired_difference
from topk_platform.specs import Arm, Published, Scalar, Study

__all__ = ["Cell", "Choice", "Table", "build_table"]


@dataclass(frozen=True)
class Cell:
    """One row in one column by one metric.

    Args:
        value: Mean test metric over the confirmed seeds; None where nothing is confirmed yet.
        difference: To the baseline, paired by seed; None for the baseline itself.
        best: Whether no row has a higher mean in this column.
        published: What a paper printed for it, in percent.
    """

    value: Estimate | None
    difference: Estimate | None = None
    best: bool = False
    published: Published | None = None


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
class Table:
    """A study's results.

    Args:
        study: The study.
        rows: Row names: losses, or model and loss where the study has several regimes and several models.
        columns: Column names: regimes, or models where the study has several models in a single regime.
        cells: By row, column and metric; what is neither confirmed yet nor published is missing.
        choices: By row and column.
        failures: Keys, arms and reasons of failed trials.
        outdated: How many recorded trials of these arms do not count: other code or other data made them.
        across: What the columns are, ``"regime"`` or ``"model"``.
    """

    study: Study
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]
    choices: Mapping[tuple[str, str], Choice]
    failures: tuple[tuple[str, str, str], ...] = ()
    outdated: int = 0
    across: str = "regime"


Place = tuple[str, str, str]
"""Row, column and metric."""


def build_table(study: Study, histories: Mapping[str, ArmHistory]) -> Table:
    """Return the table of what the ledger holds of the study.

    Args:
        study: Says which arms, how many trials and which metrics.
        histories: Each arm's history, by identity.
    """
    across = _across(study)
    arms = [(*_row_and_column(study, across, history.arm), history) for history in histories.values()]
    values: dict[Place, dict[int, float]] = {}
    against: dict[Place, dict[int, float]] = {}
    published: dict[Place, Published] = {}
    for row, column, history in arms:
        rows, baseline = history.confirmed(study.trials, study.seeds), _baseline(study, histories, history)
        theirs = {} if baseline is None else baseline.confirmed(study.trials, study.seeds)
        for metric in study.accuracies:
            values[row, column, metric] = _by_seed(rows, metric)
            against[row, column, metric] = _by_seed(theirs, metric)
            if (number := study.published_of(history.arm, metric)) is not None:
                published[row, column, metric] = number
    return Table(
        study=study,
        rows=tuple(dict.fromkeys(row for row, _, _ in arms)),
        columns=tuple(dict.fromkeys(column for _, column, _ in arms)),
        cells=_cells(values, against, published),
        choices={(row, column): found for row, column, h in arms if (found := _choice(h, study.trials))},
        failures=tuple(_failures(histories)),
        outdated=sum(history.outdated for history in histories.values()),
        across=across,
    )


def _by_seed(rows: Mapping[int, Row], metric: str) -> dict[int, float]:
    values = {seed: row[f"test.{metric}"] for seed, row in rows.items()}
    return {seed: value for seed, value in values.items() if value is not None}  # a regime may lack a group


def _baseline(study: Study, histories: Mapping[str, ArmHistory], history: ArmHistory) -> ArmHistory | None:
    """Return the history that an arm is compared with: same regime, same model; None for the baseline itself."""
    if history.arm.loss.label == study.baseline:
        return None
    place = (history.arm.regime.name, history.arm.model.label, study.baseline)
    named = {(h.arm.regime.name, h.arm.model.label, h.arm.loss.label): h for h in histories.values()}
    return named.get(place)


def _cells(
    values: Mapping[Place, Mapping[int, float]],
    against: Mapping[Place, Mapping[int, float]],
    published: Mapping[Place, Published],
) -> dict[Place, Cell]:
    means = {place: found for place, by_seed in values.items() if (found := estimate(list(by_seed.values())))}
    top: dict[tuple[str, str], float] = {}
    for (_, column, metric), mean in means.items():
        top[column, metric] = max(mean.mean, top.get((column, metric), mean.mean))
    cells = {place: Cell(None, published=number) for place, number in published.items()}
    for place, mean in means.items():
        difference = paired_difference(values[place], against[place])
        cells[place] = Cell(mean, difference, mean.mean == top[place[1:]], published.get(place))
    return {place: cells[place] for place in values if place in cells}


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
    statuses = [row["status"] for number, row in history.search.items() if number < trials]
    stopped = sum(status != "completed" for status in statuses)
    return Choice(chosen.values, chosen.objective, len(statuses), stopped)


def _failures(histories: Mapping[str, ArmHistory]) -> list[tuple[str, str, str]]:
    rows = [row for history in histories.values() for row in history.rows() if row["status"] == "failed"]
    return [(row["key"], row["arm"], row["reason"]) for row in rows]
