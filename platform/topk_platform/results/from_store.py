"""Reading a study's results from a store, and building its table from its arms' histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from topk_platform.identity import BITS, CHOOSER, environment_of
from topk_platform.protocol import Tally
from topk_platform.records.history import ArmHistory, ArmResults, last_counted, read_history, results_of
from topk_platform.records.ledger import Ledger, nothing_of
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.recorded import as_recorded, read_plan
from topk_platform.records.run_notes import DataNote, read_data
from topk_platform.records.storage.store import Store
from topk_platform.references import is_reference
from topk_platform.results.cells import Cell, CellKey, cell_of, marked, test_images_of
from topk_platform.results.runs import ReadRanks, Runs, runs_of_all
from topk_platform.results.table import ChosenValues, Fruitless, Table, row_and_column
from topk_platform.specs import Arm, Study

__all__ = ["Held", "build_table", "read"]


@dataclass(frozen=True)
class Held:
    """A study's results in a store.

    Args:
        study: The study, with the requested budget.
        ledger: Its ledger, which may not exist yet.
        histories: Each arm's history, by the arm's ID.
        store: The store as the user typed it; empty for the default.
        folder: The folder of datasets that the last run was given; empty if it was given none.
        changed: Whether nothing recorded counts for the study or the code as they are now, so that ``study`` and
            ``histories`` are those of the last run.
    """

    study: Study
    ledger: Ledger
    histories: Mapping[str, ArmHistory]
    store: str = ""
    folder: str = ""
    changed: bool = False

    @cached_property
    def results(self) -> dict[str, ArmResults]:
        """Every arm's results that count within the budget, by the arm's ID."""
        return results_of(self.study, self.histories)

    @cached_property
    def data(self) -> dict[str, DataNote]:
        """The runs' notes of each regime's data, by the regime's name: numbers of samples and names of classes."""
        return read_data(self.ledger.store)

    @cached_property
    def table(self) -> Table:
        """The table of all arms, built once: with many test images, building takes most of a report's time."""
        return self.table_of(self.study.arms)

    def table_of(self, arms: Sequence[Arm]) -> Table:
        """Return the table of some arms; numbers and marks are those of the whole table."""
        built = build_table(self.study, self.histories, arms, self.ranks)
        given = {"store": self.store, "data": self.folder}
        return replace(built, changed=self.changed, given=given)

    def data_folder(self, given: str | Path | None = None) -> str | Path | None:
        """Return the folder of datasets: the one that is given, else that of the last run; None for the default."""
        return given if given is not None or not Path(self.folder or "-").is_dir() else self.folder

    @property
    def ranks(self) -> ReadRanks:
        """A function that reads the ranks of test images."""
        return partial(read_all_ranks, self.ledger.store)


def read(study: Study, store: str | Path, *, curves: bool = False, needed: bool = False) -> Held:
    """Return a study's results in a store, with the searches, trials and seeds that the last run was asked for.

    If the study or the code has changed since, so that nothing recorded counts, the results are those that the last run
    counted.

    Args:
        study: The study.
        store: Folder or URI of the results.
        curves: Whether to read the search trials' epochs.
        needed: Whether to raise an error if the store holds nothing of the study.

    Raises:
        UserError: if the store holds something else, or nothing of the study and ``needed`` is set.
    """
    ledger = Ledger.open(Store.open(store), study.name)
    if needed and not ledger.exists:
        raise nothing_of(store, study.name)
    last = read_plan(ledger.store)
    study = as_recorded(study if last is None else last.budget_of(study), ledger)
    histories = read_history(ledger, study, last_counted(ledger, study), curves=curves)
    folder = "" if last is None else last.data
    if last is not None and not any(map(ArmHistory.rows, histories.values())):
        # The last run's definition may not bring in code that the study at hand lacks.
        theirs = [m for m in last.study.measures if not is_reference(m) or m in study.measures]
        shown = [m for m in last.study.show if not is_reference(m) or m in study.measures]
        before = replace(last.study, reference=study.reference, measures=tuple(theirs), show=tuple(shown))
        was = as_recorded(before, ledger)
        earlier = read_history(ledger, was, ledger.identities(), curves=curves)
        if any(map(ArmHistory.rows, earlier.values())):
            return Held(was, ledger, earlier, str(store), folder, changed=True)
    return Held(study, ledger, histories, str(store), folder)


def build_table(
    study: Study,
    histories: Mapping[str, ArmHistory],
    only: Sequence[Arm] | None = None,
    ranks: ReadRanks | None = None,
) -> Table:
    """Build a study's table from its arms' histories.

    Args:
        study: The study, with its arms, its number of trials and its metrics.
        histories: Each arm's history, by arm ID.
        only: The arms to show, by default all; numbers and marks are those of the whole table.
        ranks: A function that reads the ranks of test images, which intervals over images need. Without it, or if the
            study has ``interval="seeds"``, intervals cover seeds alone.
    """
    one_regime = len({arm.regime.name for arm in study.arms}) == 1
    across = "model" if one_regime and len(study.models) > 1 else "regime"
    names = None if only is None else {arm.name for arm in only}
    keys = {
        arm_id: row_and_column(study, across, history.arm)
        for arm_id, history in histories.items()
        if names is None or history.arm.name in names
    }
    results = results_of(study, histories)
    runs = runs_of_all(study, results)
    shown = {arm_id: histories[arm_id] for arm_id in keys}
    counting = {arm_id: results[arm_id] for arm_id in keys}
    cells, lacking = _cells(study, histories, runs, across, ranks if study.interval == "crossed" else None)
    shown_cells = {key: cell for key, cell in cells.items() if key[:2] in keys.values()}
    networks = _networks(histories, runs, ranks if study.interval == "crossed" else None)
    return Table(
        study=study,
        rows=tuple(dict.fromkeys(row for row, _ in keys.values())),
        columns=tuple(dict.fromkeys(column for _, column in keys.values())),
        cells=shown_cells,
        choices={keys[i]: result for i, arm in counting.items() if (result := tuple(_choices(arm)))},
        failures=tuple(
            (row["key"], history.arm.name, row["reason"])
            for history in shown.values()
            for row in history.rows()
            if row["status"] == "failed"
        ),
        fruitless=tuple(filter(None, map(_fruitless, counting.values()))),
        outdated=sum((history.outdated for history in shown.values()), Counter()),
        environments=_environments(shown),
        across=across,
        network_cells={key: cell for key, cell in networks.items() if names is None or key[0] in names},
        confirmations={key: runs[arm_id].confirmations for arm_id, key in keys.items()},
        test_images=test_images_of(shown_cells),
        left=sum(arm.left for arm in counting.values()),
        without_ranks=sum(lacking[arm_id] for arm_id in shown),
    )


def _cells(
    study: Study,
    histories: Mapping[str, ArmHistory],
    runs: Mapping[str, Runs],
    across: str,
    read: ReadRanks | None,
) -> tuple[dict[CellKey, Cell], dict[str, int]]:
    """Return the cells, and how many confirmations lack their ranks, by arm ID."""
    arms = {arm_id: history.arm for arm_id, history in histories.items()}
    named = {(a.regime.name, a.model.label): i for i, a in arms.items() if a.loss.label == study.baseline}
    compared: dict[str, list[str]] = {}  # by the baseline of their regime and model; "" for arms without one
    for arm_id, arm in arms.items():
        compared.setdefault(named.get((arm.regime.name, arm.model.label), ""), []).append(arm_id)
    cells: dict[CellKey, tuple[Cell, Tally]] = {}
    lacking: dict[str, int] = {}
    for baseline, arm_ids in compared.items():
        theirs = runs[baseline].with_ranks(read) if baseline else Runs()
        for arm_id in arm_ids:
            arm = arms[arm_id]
            ours = theirs if arm_id == baseline else runs[arm_id].with_ranks(read)
            beside = Runs() if arm_id == baseline else theirs
            lacking[arm_id] = ours.without_ranks
            for metric in study.tabled:
                published, primary = study.published_of(arm, metric), metric == arm.metric
                cell = cell_of(ours, beside, metric, published, primary=primary)
                if cell.value is not None or cell.published is not None or ours.fruitless:
                    cells[(*row_and_column(study, across, arm), metric)] = cell, beside.confirmed
    return marked(cells, study.equivalence / 100), lacking


def _networks(
    histories: Mapping[str, ArmHistory], runs: Mapping[str, Runs], read: ReadRanks | None
) -> dict[CellKey, Cell]:
    """Return how each arm differs from the one of the first network with its regime and loss: a family of its own.

    The keys are the arm's name, that network's label and the arm's metric.
    """
    first: dict[tuple[str, str], str] = {}
    cells: dict[CellKey, tuple[Cell, Tally]] = {}
    for arm_id, history in histories.items():
        arm = history.arm
        other = first.setdefault((arm.regime.name, arm.loss.label), arm_id)
        if other != arm_id:
            ours, theirs = runs[arm_id].with_ranks(read), runs[other].with_ranks(read)
            key = arm.name, histories[other].arm.model.label, arm.metric
            cells[key] = cell_of(ours, theirs, arm.metric), theirs.confirmed
    return marked(cells)


def _choices(results: ArmResults) -> Iterator[ChosenValues]:
    for search, best in enumerate(results.chosen if results.arm.is_searched else ()):
        if best:
            numbers, rows = results.state.searches[search].numbers, results.history.search
            tally = Tally.of(rows[number]["status"] for number in numbers if number in rows)
            stopped = tally.ended - tally.completed
            yield ChosenValues(best.values, best.objective, tally.ended, stopped, search)


def _environments(histories: Mapping[str, ArmHistory]) -> Mapping[str, int]:
    rows = [row for history in histories.values() for row in history.rows()]
    result: dict[str, int] = {}
    for names in (BITS, (CHOOSER,)):  # rows of arms that search nothing name no chooser
        counts = Counter(filter(None, (environment_of(row, names) for row in rows)))
        result |= counts if len(counts) > 1 else {}
    return result


def _fruitless(results: ArmResults) -> Fruitless | None:
    confirmed = list(results.confirmations().values())
    rows = confirmed or results.searched()
    ends = Tally.of(row["status"] for row in rows)
    repeats, seeds = results.arm.repeats, results.state.study.seeds
    chosen = sum(bool(results.chosen[repeats.search_of_seed(seed)]) for seed in repeats.seeds(seeds))
    due = chosen if confirmed else results.state.trials  # a search that chose nothing has nothing to confirm
    if not rows or ends.completed or len(rows) < due:
        return None
    first = min(rows, key=lambda row: (row["number"], row["seed"]))
    return Fruitless(
        results.arm.name, "confirm" if confirmed else "search", ends, first["key"], first["reason"]
    )
