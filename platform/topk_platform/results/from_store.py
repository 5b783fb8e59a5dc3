"""Reading a study's table from a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from topk_platform.records import (
    ArmHistory,
    ArmResults,
    DataNote,
    Ledger,
    Store,
    as_recorded,
    last_counted,
    nothing_of,
    read_all_ranks,
    read_data,
    read_history,
    read_plan,
    results_of,
)
from topk_platform.results.runs import ReadRanks
from topk_platform.results.table import Table
from topk_platform.results.table_building import build_table
from topk_platform.specs import Arm, Study
from topk_platform.specs.fields import check_call

__all__ = ["Held", "main_metric", "read", "table"]


def table(
    study: Study,
    *,
    store: str | Path = "runs",
    only: str | Sequence[str] | None = None,
) -> Table:
    """Return a study's table from the store's results; run nothing.

    A study with published numbers has a table of them even before anything ran.

    Args:
        study: The study.
        store: Folder or URI of the results.
        only: A glob over the names of the arms to show, ``regime/model/loss``, or several.

    Raises:
        UserError: if the store holds something else, or nothing of the study.
    """
    check_call(table, locals())
    held = read(study, store)
    shown = held.study.only(only) if only else held.study
    if not held.ledger.exists and not shown.published:
        raise nothing_of(store, study.name)
    return held.table_of(shown.arms)


@dataclass(frozen=True)
class Held:
    """A study's results in a store.

    Args:
        study: The study, with the requested budget.
        ledger: Its ledger, which may not exist yet.
        histories: Each arm's history, by the arm's identity.
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
        """Every arm's results that count within the budget, by the arm's identity."""
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
        was = as_recorded(replace(last.study, reference=study.reference), ledger)
        before = read_history(ledger, was, ledger.identities(), curves=curves)
        if any(map(ArmHistory.rows, before.values())):
            return Held(was, ledger, before, str(store), folder, changed=True)
    return Held(study, ledger, histories, str(store), folder)


def main_metric(study: Study) -> str:
    """Return a study's main metric: the one that selects in most arms, if its tables show it."""
    selecting = Counter(arm.metric for arm in study.arms if arm.metric in study.show)
    return selecting.most_common(1)[0][0] if selecting else study.show[0]
