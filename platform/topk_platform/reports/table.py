"""The comparison table: configurations selected on validation, test results over fresh seeds."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topk_platform.identity import bits_of, chooser_of
from topk_platform.protocol.ended import Ended
from topk_platform.records import ArmHistory, ArmResults, Row, Tally, results_of
from topk_platform.reports.cells import Cell, cell_of, marked, tested
from topk_platform.reports.edges import Edge, edges
from topk_platform.reports.fronts import Front, front_of
from topk_platform.reports.kinds import Unlike, unlike
from topk_platform.reports.plain import as_text
from topk_platform.reports.runs import IMAGES, ReadRanks, Runs, runs_of_all
from topk_platform.reports.statistics import Ranking, ranking
from topk_platform.specs import Arm, Phase, Scalar, Study, less_is_better

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import ConsoleRenderable

__all__ = ["Cell", "ChosenValues", "Fruitless", "Table", "build_table", "row_and_column"]


@dataclass(frozen=True)
class ChosenValues:
    """The configuration that one of an arm's searches chose.

    Args:
        values: The best search trial's values.
        validation: Its validation metric.
        trials: How many trials of the search ended; the first, which all searches of the arm share, counts in each.
        stopped: How many of them were pruned, diverged or failed.
        search: Which of the arm's searches, from 0.
    """

    values: Mapping[str, Scalar]
    validation: float
    trials: int
    stopped: int
    search: int = 0


@dataclass(frozen=True)
class Fruitless:
    """An arm that will have no result: all trials of a phase have ended and none was completed.

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


@dataclass(frozen=True, repr=False)
class Table:
    """A study's results.

    Args:
        study: The study.
        rows: Row names: losses, or model and loss where the study has several regimes and several models.
        columns: Column names: regimes, or models where the study has several models in a single regime.
        cells: By row, column and metric; missing where there is neither a number nor a reason for its absence.
        choices: By row and column, one for each of the arm's searches that has chosen.
        failures: Keys, arms and reasons of failed trials.
        fruitless: The arms that ended without a result.
        outdated: How many recorded trials of these arms do not count, by the reason.
        environments: The number of counting trials by environment, if there are several.
        adopted: How many of the counting trials were adopted, by the evidence.
        choosers: For arms whose search trials were chosen by several versions of a package, the numbers of the first
            trials that each chose, by row and column.
        across: What the columns are, ``"regime"`` or ``"model"``.
        confirmations: The ended confirmations' ledger rows by seed, by row and column.
        left: How many trials of these arms have not ended.
        fronts: The fronts of arms searched by several metrics, by row and column; their cells show the best by the
            first metric.
        unlike: The pairs of runs behind a difference that were made on different kinds of machine, by row and column.
        tested: The number of test images by column, where it is known, or of groups of them.
        units: What is counted in ``tested`` by column, such as ``"typefaces"``, where it is not test images.
        without_ranks: How many completed confirmations lack the ranks of their test images, which intervals need.
    """

    study: Study
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]
    choices: Mapping[tuple[str, str], tuple[ChosenValues, ...]]
    failures: tuple[tuple[str, str, str], ...] = ()
    fruitless: tuple[Fruitless, ...] = ()
    outdated: Mapping[str, int] = field(default_factory=dict)
    environments: Mapping[str, int] = field(default_factory=dict)
    adopted: Mapping[str, int] = field(default_factory=dict)
    choosers: Mapping[tuple[str, str], Mapping[int, str]] = field(default_factory=dict)
    across: str = "regime"
    confirmations: Mapping[tuple[str, str], Mapping[int, Row]] = field(default_factory=dict)
    left: int = 0
    fronts: Mapping[tuple[str, str], Front] = field(default_factory=dict)
    unlike: Mapping[tuple[str, str], Unlike] = field(default_factory=dict)
    tested: Mapping[str, int] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    without_ranks: int = 0

    def ranking(self, metric: str) -> Ranking | None:
        """Return the ranking of the rows over the columns by a metric; None if there are too few rows or columns.

        Only columns count in which every row with results has lost no seed.
        """
        sign = -1 if less_is_better(metric) else 1
        found = {row: [self.cells.get((row, c, metric)) for c in self.columns] for row in self.rows}
        sound = {
            row: [
                None if c is None or c.value is None or c.confirmed.lost else sign * c.value.mean
                for c in cells
            ]
            for row, cells in found.items()
        }
        sound = {row: values for row, values in sound.items() if any(v is not None for v in values)}
        whole = [
            i for i in range(len(self.columns)) if all(values[i] is not None for values in sound.values())
        ]
        return ranking(
            {row: [v for i in whole if (v := values[i]) is not None] for row, values in sound.items()}
        )

    def to_pandas(self) -> DataFrame:
        """Return every metric of every cell as a pandas frame, a row each, shares as fractions of 1."""
        data = importlib.import_module("topk_platform.reports.formats.data")  # which imports this module
        return data.to_arrow(self).to_pandas()

    def to_markdown(self, metrics: Sequence[str] = (), *, transpose: bool = False) -> str:
        """Return the table as Markdown: the metrics named, or the study's; losses as columns where transposed."""
        return str(_written("md", self, metrics, transpose=transpose))

    def to_latex(self, metrics: Sequence[str] = (), *, transpose: bool = False) -> str:
        """Return the table in LaTeX with booktabs; arguments as of :meth:`to_markdown`."""
        return str(_written("latex", self, metrics, transpose=transpose))

    def to_html(self, metrics: Sequence[str] = (), *, transpose: bool = False) -> str:
        """Return the table in HTML; arguments as of :meth:`to_markdown`."""
        return str(_written("html", self, metrics, transpose=transpose))

    def _repr_html_(self) -> str:
        return self.to_html()

    def __rich__(self) -> ConsoleRenderable:
        found: ConsoleRenderable = _written("rich", self)
        return found

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    @property
    def edges(self) -> list[tuple[str, Edge]]:
        """What the searches chose within 5 % of an end of a range, each with its row and column."""
        losses = {row_and_column(self.study, self.across, arm): arm.loss for arm in self.study.arms}
        return [
            (", ".join(place), edge)
            for place, choices in self.choices.items()
            if place in losses  # and not of a table whose rows were given other names
            for choice in choices
            for edge in edges(losses[place], choice.values)
        ]

    @property
    def tests(self) -> int:
        """The number of differences of the primary family that are tested, and for which its marks are corrected."""
        return sum(cell.primary and cell.p_holm is not None for cell in self.cells.values())

    @property
    def once(self) -> bool:
        """Whether differences are not tested because an arm of them was searched once."""
        return any(cell.difference is not None and cell.difference.once for cell in self.cells.values())

    @property
    def confirmed(self) -> Tally:
        """How all confirmations ended."""
        return Tally.of(row["status"] for rows in self.confirmations.values() for row in rows.values())


def _written(output: str, table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> Any:
    formats = importlib.import_module("topk_platform.reports.formats")  # which imports this module
    return formats.as_format(output, table, metrics, transpose=transpose)


Place = tuple[str, str, str]
"""Row, column and metric."""


def build_table(
    study: Study,
    histories: Mapping[str, ArmHistory],
    only: Sequence[Arm] | None = None,
    ranks: ReadRanks | None = None,
) -> Table:
    """Build a study's table from its arms' histories.

    Args:
        study: Says which arms, how many trials and which metrics.
        histories: Each arm's history, by identity.
        only: The arms to show, by default all; numbers and marks are those of the whole table.
        ranks: Reads the ranks of test images, which intervals over images need; without them, or where the study
            wants ``interval="seeds"``, intervals cover seeds alone.
    """
    across = _across(study)
    places = {
        arm_id: row_and_column(study, across, history.arm)
        for arm_id, history in histories.items()
        if only is None or history.arm in only
    }
    results = results_of(study, histories)
    runs = runs_of_all(study, results)
    shown = {arm_id: histories[arm_id] for arm_id in places}
    counting = {arm_id: results[arm_id] for arm_id in places}
    cells, lacking = _cells(study, histories, runs, across, ranks if study.interval == "crossed" else None)
    shown_cells = {place: cell for place, cell in cells.items() if place[:2] in places.values()}
    images = tested(shown_cells)
    return Table(
        study=study,
        rows=tuple(dict.fromkeys(row for row, _ in places.values())),
        columns=tuple(dict.fromkeys(column for _, column in places.values())),
        cells=shown_cells,
        choices={places[i]: found for i, arm in counting.items() if (found := _choices(arm))},
        failures=tuple(_failures(shown)),
        fruitless=tuple(filter(None, map(_fruitless, counting.values()))),
        outdated=sum((history.outdated for history in shown.values()), Counter()),
        environments=_environments(shown),
        adopted=sum((history.adopted for history in shown.values()), Counter()),
        choosers={places[i]: c for i, arm in counting.items() if (c := _choosers(arm))},
        across=across,
        confirmations={place: runs[arm_id].confirmations for arm_id, place in places.items()},
        fronts={places[i]: f for i, arm in counting.items() if (f := front_of(arm))},
        unlike={places[i]: pairs for i, pairs in _unlike(study, histories, runs).items() if i in places},
        tested={column: count for column, (count, _) in images.items()},
        units={column: what for column, (_, what) in images.items() if what != IMAGES},
        left=sum(arm.left for arm in counting.values()),
        without_ranks=sum(lacking[arm_id] for arm_id in shown),
    )


def _compared(study: Study, histories: Mapping[str, ArmHistory]) -> dict[str, list[str]]:
    """Return the arms grouped by their baseline, that of their regime and model; ``""`` for arms without one."""
    arms = {arm_id: history.arm for arm_id, history in histories.items()}
    named = {(a.regime.name, a.model.label): i for i, a in arms.items() if a.loss.label == study.baseline}
    found: dict[str, list[str]] = {}
    for arm_id, arm in arms.items():
        found.setdefault(named.get((arm.regime.name, arm.model.label), ""), []).append(arm_id)
    return found


def _cells(
    study: Study,
    histories: Mapping[str, ArmHistory],
    runs: Mapping[str, Runs],
    across: str,
    read: ReadRanks | None,
) -> tuple[dict[Place, Cell], dict[str, int]]:
    """Return the cells, and how many confirmations lack their ranks, by arm identity."""
    cells: dict[Place, tuple[Cell, Tally]] = {}
    lacking: dict[str, int] = {}
    for baseline, arm_ids in _compared(study, histories).items():
        theirs = runs[baseline].with_ranks(read) if baseline else Runs()
        for arm_id in arm_ids:
            arm = histories[arm_id].arm
            ours = theirs if arm_id == baseline else runs[arm_id].with_ranks(read)
            beside = Runs() if arm_id == baseline else theirs
            lacking[arm_id] = ours.without_ranks
            for metric in study.tabled:
                published, primary = study.published_of(arm, metric), metric in arm.objectives
                cell = cell_of(ours, beside, metric, published, primary=primary)
                if cell.value is not None or cell.published is not None or ours.fruitless:
                    cells[(*row_and_column(study, across, arm), metric)] = cell, beside.confirmed
    return marked(cells, study.equivalence / 100), lacking


def _unlike(study: Study, histories: Mapping[str, ArmHistory], runs: Mapping[str, Runs]) -> dict[str, Unlike]:
    """Return the pairs on different kinds of machine, by the arm that is compared with its baseline."""
    compared = {baseline: arms for baseline, arms in _compared(study, histories).items() if baseline}
    found = {arm: unlike(runs[arm], runs[baseline]) for baseline, arms in compared.items() for arm in arms}
    return {arm: pairs for arm, pairs in found.items() if pairs}


def _across(study: Study) -> str:
    """Return what the columns are: regimes, or models where there is a single regime."""
    regimes, models = ({arm.regime.name for arm in study.arms}, {arm.model.label for arm in study.arms})
    return "model" if len(regimes) == 1 and len(models) > 1 else "regime"


def row_and_column(study: Study, across: str, arm: Arm) -> tuple[str, str]:
    """Return the row and the column of an arm in a table whose columns are ``across``."""
    if across == "model":
        return arm.loss.label, arm.model.label
    several = len({other.model.label for other in study.arms}) > 1
    return f"{arm.model.label}/{arm.loss.label}" if several else arm.loss.label, arm.regime.name


def _choices(results: ArmResults) -> tuple[ChosenValues, ...]:
    if not results.arm.is_searched:
        return ()
    chosen = enumerate(results.chosen)
    return tuple(_choice(results, search, best[0]) for search, best in chosen if best)


def _choice(results: ArmResults, search: int, best: Ended) -> ChosenValues:
    numbers, rows = results.state.lanes[search].numbers, results.history.search
    tally = Tally.of(rows[number]["status"] for number in numbers if number in rows)
    return ChosenValues(best.values, best.objective, tally.ended, tally.ended - tally.completed, search)


def _environments(histories: Mapping[str, ArmHistory]) -> Mapping[str, int]:
    rows = (row for history in histories.values() for row in history.rows())
    found = Counter(map(bits_of, rows))
    return found if len(found) > 1 else {}


def _choosers(results: ArmResults) -> dict[int, str]:
    """Return, if several versions chose an arm's search trials, from which number on which did."""
    rows = sorted(results.searched(), key=lambda row: row["number"])
    told = {row["number"]: chooser_of(row) for row in rows}
    before = [None, *told.values()]
    changes = {
        n: said for (n, said), last in zip(told.items(), before, strict=False) if said and said != last
    }
    return changes if len(changes) > 1 else {}


def _fruitless(results: ArmResults) -> Fruitless | None:
    confirmed = list(results.confirmations().values())
    rows = confirmed or results.searched()
    ends = Tally.of(row["status"] for row in rows)
    due = _due(results) if confirmed else results.state.trials
    if not rows or ends.completed or len(rows) < due:
        return None
    first = min(rows, key=lambda row: (row["number"], row["seed"]))
    return Fruitless(
        results.arm.name, "confirm" if confirmed else "search", ends, first["key"], first["reason"]
    )


def _due(results: ArmResults) -> int:
    """Return how many confirmations are due: none for a search that chose nothing."""
    repeats = results.arm.repeats
    return sum(bool(results.chosen[repeats.search_of_seed(seed)]) for seed in repeats.seeds(results.last))


def _failures(histories: Mapping[str, ArmHistory]) -> list[tuple[str, str, str]]:
    return [
        (row["key"], history.arm.name, row["reason"])
        for history in histories.values()
        for row in history.rows()
        if row["status"] == "failed"
    ]
