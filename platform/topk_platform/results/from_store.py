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
    last_counted,
    nothing_of,
    read_all_ranks,
    read_data,
    read_history,
    results_of,
)
from topk_platform.records.recorded import GONE
from topk_platform.results.confirmed_runs import ReadRanks
from topk_platform.results.table import Table
from topk_platform.results.table_building import build_table
from topk_platform.specs import Arm, Study
from topk_platform.specs.fields import check_call

__all__ = ["Held", "main_metric", "read", "table"]


def table(
    study: Study,
    *,
    store: str | Path = "runs",
    trials: int | None = None,
    seeds: int | None = None,
    only: str | Sequence[str] | None = None,
) -> Table:
    """Return a study's table from the store's results; run nothing.

    A study with published numbers has a table of them even before anything ran.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm to select among, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.
        only: A glob over the names of the arms to show, ``regime/model/loss``, or several.

    Raises:
        UserError: if the store holds something else, or nothing of the study.
    """
    check_call(table, locals())
    held = read(study, store, trials, seeds)
    shown = study.only(only) if only else study
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
    """

    study: Study
    ledger: Ledger
    histories: Mapping[str, ArmHistory]
    store: str = ""

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
        return replace(built, outdated={**built.outdated, **self._gone}, given={"store": self.store})

    @cached_property
    def _gone(self) -> Mapping[str, int]:
        """The trials of other arms, if none is of the study's: then its definition, or its name, has changed."""
        if any(arm.search or arm.confirm or arm.outdated for arm in self.histories.values()):
            return {}
        return {GONE: trials} if (trials := sum(row["trials"] for row in self.ledger.arms())) else {}

    @property
    def ranks(self) -> ReadRanks:
        """A function that reads the ranks of test images."""
        return partial(read_all_ranks, self.ledger.store)


def read(
    study: Study,
    store: str | Path,
    trials: int | None = None,
    seeds: int | None = None,
    *,
    curves: bool = False,
    needed: bool = False,
) -> Held:
    """Return a study's results in a store.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.
        curves: Whether to read the search trials' epochs.
        needed: Whether to raise an error if the store holds nothing of the study.

    Raises:
        UserError: if the store holds something else, or nothing of the study and ``needed`` is set.
    """
    study = study.with_budget(trials, seeds)
    ledger = Ledger.open(Store.open(store), study.name)
    if needed and not ledger.exists:
        raise nothing_of(store, study.name)
    histories = read_history(ledger, study, last_counted(ledger, study), curves=curves)
    return Held(study, ledger, histories, str(store))


def main_metric(study: Study) -> str:
    """Return a study's main metric: the one that selects in most arms, if its tables show it."""
    selecting = Counter(arm.metric for arm in study.arms if arm.metric in study.show)
    return selecting.most_common(1)[0][0] if selecting else study.show[0]
