"""The comparison table: selected on validation, told of the test set, over fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topk_platform.records import ArmHistory, Row
from topk_platform.reports.statistics import Estimate, estimate, paired_difference
from topk_platform.specs import Scalar, Study

__all__ = ["Cell", "Choice", "Table", "build_table"]


@dataclass(frozen=True)
class Cell:
    """One loss in one regime by one metric.

    Args:
        value: Mean test metric over the confirmed seeds.
        difference: To the baseline, paired by seed; None for the baseline itself.
        best: Whether no loss of the regime has a higher mean.
    """

    value: Estimate
    difference: Estimate | None
    best: bool


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
        rows: Row names: losses, or model and loss where the study has several models.
        columns: Column names: regimes.
        cells: By row, regime and metric; what is not confirmed yet is missing.
        choices: By row and regime.
        failures: Keys, arms and reasons of failed trials.
        outdated: How many recorded trials of these arms do not count: other code or other data made them.
    """

    study: Study
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]
    choices: Mapping[tuple[str, str], Choice]
    failures: tuple[tuple[str, str, str], ...] = ()
    outdated: int = 0


Place = tuple[str, str, str]
"""Row, regime and metric."""


def build_table(study: Study, histories: Mapping[str, ArmHistory]) -> Table:
    """Return the table of what the ledger holds of the study.

    Args:
        study: Says which arms, how many trials and which metrics.
        histories: Each arm's history, by identity.
    """
    arms = [(_row(study, history), history.arm.regime.name, history) for history in histories.values()]
    values: dict[Place, dict[int, float]] = {}
    against: dict[Place, dict[int, float]] = {}
    for row, regime, history in arms:
        rows, baseline = history.confirmed(study.trials, study.seeds), _baseline(study, histories, history)
        theirs = {} if baseline is None else baseline.confirmed(study.trials, study.seeds)
        for metric in study.accuracies:
            values[row, regime, metric] = _by_seed(rows, metric)
            against[row, regime, metric] = _by_seed(theirs, metric)
    return Table(
        study=study,
        rows=tuple(dict.fromkeys(row for row, _, _ in arms)),
        columns=tuple(dict.fromkeys(regime for _, regime, _ in arms)),
        cells=_cells(values, against),
        choices={(row, regime): found for row, regime, h in arms if (found := _choice(h, study.trials))},
        failures=tuple(_failures(histories)),
        outdated=sum(history.outdated for history in histories.values()),
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
    values: Mapping[Place, Mapping[int, float]], against: Mapping[Place, Mapping[int, float]]
) -> dict[Place, Cell]:
    means = {place: found for place, by_seed in values.items() if (found := estimate(list(by_seed.values())))}
    top: dict[tuple[str, str], float] = {}
    for (_, regime, metric), mean in means.items():
        top[regime, metric] = max(mean.mean, top.get((regime, metric), mean.mean))
    return {
        place: Cell(mean, paired_difference(values[place], against[place]), mean.mean == top[place[1:]])
        for place, mean in means.items()
    }


def _row(study: Study, history: ArmHistory) -> str:
    several = len({arm.model.label for arm in study.arms}) > 1
    return f"{history.arm.model.label}/{history.arm.loss.label}" if several else history.arm.loss.label


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
