"""The table of what a store holds of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from topk_platform.errors import StoreError
from topk_platform.records import Ledger, Store, last_counted, read_history
from topk_platform.reports.table import Table, build_table
from topk_platform.specs import Study

__all__ = ["table"]


def table(
    study: Study,
    *,
    store: str | Path = "runs",
    trials: int | None = None,
    seeds: int | None = None,
    only: str | Sequence[str] | None = None,
) -> Table:
    """Return the table of what the store holds of a study, running nothing.

    Of a study with published numbers there is a table of these before anything ran.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm to select among, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.
        only: A glob over the names of the arms to show, ``regime/model/loss``, or several.

    Raises:
        UserError: if the store holds something else, or nothing of the study.
    """
    study = study.with_budget(trials, seeds)
    shown = study.only(only) if only else study
    ledger = Ledger.open(Store.open(store), study.name)
    if not ledger.exists and not shown.published:
        raise StoreError(f"store {str(store)!r} holds nothing of study {study.name!r}")
    return build_table(
        study, read_history(ledger, study, last_counted(ledger, study), curves=False), shown.arms
    )
