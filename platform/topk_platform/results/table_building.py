"""Building a study's table from its arms' histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from topk_platform.identity import bits_of, chooser_of
from topk_platform.protocol import Tally
from topk_platform.protocol.search_progress import Ended
from topk_platform.records import ArmHistory, ArmResults, results_of
from topk_platform.results.cells import Cell, CellKey, cell_of, marked, tested
from topk_platform.results.runs import IMAGES, ReadRanks, Runs, Unlike, runs_of_all, unlike
from topk_platform.results.table import ChosenValues, Fruitless, Table, row_and_column
from topk_platform.specs import Arm, Study

__all__ = ["build_table"]


def build_table(
    study: Study,
    histories: Mapping[str, ArmHistory],
    only: Sequence[Arm] | None = None,
    ranks: ReadRanks | None = None,
) -> Table:
    """Build a study's table from its arms' histories.

    Args:
        study: The study, with its arms, its number of trials and its metrics.
        histories: Each arm's history, by identity.
        only: The arms to show, by default all; numbers and marks are those of the whole table.
        ranks: A function that reads the ranks of test images, which intervals over images need. Without it, or if the
            study has ``interval="seeds"``, intervals cover seeds alone.
    """
    across = _across(study)
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
    images = tested(shown_cells)
    return Table(
        study=study,
        rows=tuple(dict.fromkeys(row for row, _ in keys.values())),
        columns=tuple(dict.fromkeys(column for _, column in keys.values())),
        cells=shown_cells,
        choices={keys[i]: result for i, arm in counting.items() if (result := _choices(arm))},
        failures=tuple(_failures(shown)),
        fruitless=tuple(filter(None, map(_fruitless, counting.values()))),
        outdated=sum((history.outdated for history in shown.values()), Counter()),
        environments=_environments(shown),
        choosers={keys[i]: c for i, arm in counting.items() if (c := _choosers(arm))},
        across=across,
        confirmations={key: runs[arm_id].confirmations for arm_id, key in keys.items()},
        unlike={keys[i]: pairs for i, pairs in _unlike(study, histories, runs).items() if i in keys},
        tested={column: count for column, (count, _) in images.items()},
        units={column: what for column, (_, what) in images.items() if what != IMAGES},
        left=sum(arm.left for arm in counting.values()),
        without_ranks=sum(lacking[arm_id] for arm_id in shown),
    )


def _compared(study: Study, histories: Mapping[str, ArmHistory]) -> dict[str, list[str]]:
    """Return the arms by their baseline, the one of their regime and model; ``""`` for arms without a baseline."""
    arms = {arm_id: history.arm for arm_id, history in histories.items()}
    named = {(a.regime.name, a.model.label): i for i, a in arms.items() if a.loss.label == study.baseline}
    result: dict[str, list[str]] = {}
    for arm_id, arm in arms.items():
        result.setdefault(named.get((arm.regime.name, arm.model.label), ""), []).append(arm_id)
    return result


def _cells(
    study: Study,
    histories: Mapping[str, ArmHistory],
    runs: Mapping[str, Runs],
    across: str,
    read: ReadRanks | None,
) -> tuple[dict[CellKey, Cell], dict[str, int]]:
    """Return the cells, and how many confirmations lack their ranks, by arm identity."""
    cells: dict[CellKey, tuple[Cell, Tally]] = {}
    lacking: dict[str, int] = {}
    for baseline, arm_ids in _compared(study, histories).items():
        theirs = runs[baseline].with_ranks(read) if baseline else Runs()
        for arm_id in arm_ids:
            arm = histories[arm_id].arm
            ours = theirs if arm_id == baseline else runs[arm_id].with_ranks(read)
            beside = Runs() if arm_id == baseline else theirs
            lacking[arm_id] = ours.without_ranks
            for metric in study.tabled:
                published, primary = study.published_of(arm, metric), metric == arm.metric
                cell = cell_of(ours, beside, metric, published, primary=primary)
                if cell.value is not None or cell.published is not None or ours.fruitless:
                    cells[(*row_and_column(study, across, arm), metric)] = cell, beside.confirmed
    return marked(cells, study.equivalence / 100), lacking


def _unlike(study: Study, histories: Mapping[str, ArmHistory], runs: Mapping[str, Runs]) -> dict[str, Unlike]:
    """Return the pairs of runs on different kinds of machine, by the arm that is compared with its baseline."""
    compared = {baseline: arms for baseline, arms in _compared(study, histories).items() if baseline}
    result = {arm: unlike(runs[arm], runs[baseline]) for baseline, arms in compared.items() for arm in arms}
    return {arm: pairs for arm, pairs in result.items() if pairs}


def _across(study: Study) -> str:
    """Return what the columns are: regimes, or models where there is a single regime."""
    regimes = {arm.regime.name for arm in study.arms}
    return "model" if len(regimes) == 1 and len(study.models) > 1 else "regime"


def _choices(results: ArmResults) -> tuple[ChosenValues, ...]:
    if not results.arm.is_searched:
        return ()
    chosen = enumerate(results.chosen)
    return tuple(_choice(results, search, best) for search, best in chosen if best)


def _choice(results: ArmResults, search: int, best: Ended) -> ChosenValues:
    numbers, rows = results.state.searches[search].numbers, results.history.search
    tally = Tally.of(rows[number]["status"] for number in numbers if number in rows)
    return ChosenValues(best.values, best.objective, tally.ended, tally.ended - tally.completed, search)


def _environments(histories: Mapping[str, ArmHistory]) -> Mapping[str, int]:
    rows = (row for history in histories.values() for row in history.rows())
    result = Counter(map(bits_of, rows))
    return result if len(result) > 1 else {}


def _choosers(results: ArmResults) -> dict[int, str]:
    """Return the versions that chose an arm's search trials, by their first trial's number; empty for one version."""
    rows = sorted(results.searched(), key=lambda row: row["number"])
    parts = {row["number"]: chooser_of(row) for row in rows}
    before = [None, *parts.values()]
    changes = {
        n: text for (n, text), last in zip(parts.items(), before, strict=False) if text and text != last
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
    return sum(
        bool(results.chosen[repeats.search_of_seed(seed)])
        for seed in repeats.seeds(results.state.study.seeds)
    )


def _failures(histories: Mapping[str, ArmHistory]) -> list[tuple[str, str, str]]:
    return [
        (row["key"], history.arm.name, row["reason"])
        for history in histories.values()
        for row in history.rows()
        if row["status"] == "failed"
    ]
