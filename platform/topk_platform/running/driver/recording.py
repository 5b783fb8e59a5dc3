"""Keeping trials' records: in the ledger, in trackers, and in the tables at the end of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from topk_platform.errors import StoreError, UserError
from topk_platform.records import (
    ArmHistory,
    Ledger,
    Writer,
    forget,
    is_current,
    read_all_ranks,
    results_of,
    write_snapshot,
)
from topk_platform.reports import to_files
from topk_platform.reports.arm_notes import arms_to_json
from topk_platform.reports.tables.classes import CLASSES, classes_to_files
from topk_platform.results import build_table
from topk_platform.results.by_class import class_results
from topk_platform.specs import Study, TrialRecord
from topk_platform.tracking import Extras, Feeds
from topk_platform.tracking.trials import ARMS

__all__ = ["Recorder", "draws_report", "make_extras"]

_HURRIED_SECONDS = 2.0


def draws_report() -> bool:
    """Return whether trackers get the report and plots; ``TOPK_REPORT=off`` in the environment prevents it.

    Raises:
        UserError: if the variable is neither ``on`` nor ``off``.
    """
    value = os.environ.get("TOPK_REPORT", "on")
    if value not in ("on", "off"):
        raise UserError(f"TOPK_REPORT must be on or off, got {value!r}")
    return value == "on"


def make_extras(study: Study, store: str) -> Extras:
    """Return a study's report and plots for trackers; drawing them takes seconds.

    Args:
        study: The study.
        store: Folder or URI of the results.
    """
    from topk_platform.reports.page import report_files  # noqa: PLC0415 - needed only at the end of a study

    return report_files(study, store=store)


@dataclass
class Recorder:
    """Keeps trials' records: first in the ledger, then, in the background, in trackers.

    Args:
        ledger: The study's ledger.
        writer: The ledger's writer.
        feeds: The feeds of the trackers.
        extras: Makes the report and plots for trackers; None for none.
        ran: How many trials have ended.
        tracking_error: The error that kept trackers from being written; None if there was none.
        hurry: Whether only seconds are left for trackers. They then get no report, and the next run fills in the rest.
    """

    ledger: Ledger
    writer: Writer
    feeds: Feeds = field(default_factory=Feeds)
    extras: Callable[[Study], Extras] | None = None
    ran: int = 0
    tracking_error: Exception | None = None
    hurry: bool = False
    _ended: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.writer.committed = self._committed

    def __call__(self, record: TrialRecord) -> None:
        """Keep a record; if earlier records could not be written, raise that error."""
        if self.writer.error is not None:
            raise self.writer.error
        self.writer.put(record)
        self.ran += 1

    def _committed(self, records: Sequence[TrialRecord]) -> None:
        """Hand committed trials to the trackers, and delete their checkpoints, which are no longer needed."""
        self._ended.update(record.trial.key for record in records)
        self._forget()
        for record in records:
            self.feeds.put(record)

    def _forget(self) -> None:
        """Delete the checkpoints of ended trials; if the store fails now, a later call deletes them."""
        with suppress(StoreError):  # the next run deletes what is left
            forget(self.ledger.store, self._ended)
            self._ended.clear()

    def close(self, whole: Study, known: Callable[[Study], dict[str, ArmHistory]]) -> None:
        """Wait for the ledger, write the tables, wait for the trackers, and keep their error, if any.

        An interrupt ends it at once, without a wait for the trackers: the next run fills in what they lack.
        """
        try:
            self._flush()
            self._write_tables(whole, known(whole))
        except Exception:
            self._close_feeds()
            raise
        self._close_feeds()

    def _flush(self) -> None:
        self.writer.flush()
        if self.writer.error is not None:
            raise self.writer.error
        self._forget()

    def _close_feeds(self) -> None:
        self.tracking_error = self.feeds.close(_HURRIED_SECONDS if self.hurry else None)

    def _write_tables(self, whole: Study, histories: Mapping[str, ArmHistory]) -> None:
        store = self.ledger.store
        ranks = partial(read_all_ranks, store)
        table = build_table(whole, histories, ranks=ranks)
        files = to_files(table) | {ARMS: arms_to_json(table, histories).encode()}
        for name, content in files.items():
            store.write(f"tables/{name}", content)
        results = results_of(whole, histories).values()
        counting = {row["key"] for arm in results for row in arm.counting()}
        if not is_current(self.ledger, counting, [f"tables/{CLASSES}"]):
            for name, content in classes_to_files(table, class_results(table, store, ranks)).items():
                store.write(f"tables/{name}", content)
            write_snapshot(self.ledger, counting)  # last, because is_current reads it
        texts = {name: files[name].decode() for name in files if not name.endswith(".parquet")}
        extras = None if self.hurry or self.extras is None else partial(self.extras, whole)
        self.feeds.put_files(texts, extras)
