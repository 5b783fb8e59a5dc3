"""Keeping trials' records: in the ledger, in MLflow, and in the tables at the end of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from topk_platform.errors import StoreError, UserError
from topk_platform.records.history import ArmHistory, results_of
from topk_platform.records.ledger import Ledger
from topk_platform.records.networks import forget
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.snapshot import is_current, write_snapshot
from topk_platform.records.writer import Writer
from topk_platform.reports.claims_and_classes import CLASSES, classes_to_files
from topk_platform.reports.table_data import arms_to_json, to_files
from topk_platform.results import build_table
from topk_platform.results.by_class import class_results
from topk_platform.specs import Study, TrialRecord
from topk_platform.tracking.feed import Feed, Pictures
from topk_platform.tracking.trials import ARMS

__all__ = ["Recorder", "drawing"]

_LAST_SECONDS = 2.0  # for MLflow once Ray is lost, because a cluster's driver is then ended soon


def drawing(study: Study, store: str) -> Pictures | None:
    """Return the function that makes a study's report and plots for MLflow, by file name; drawing takes seconds.

    Args:
        study: The study.
        store: Folder or URI of the results.

    Returns:
        The function; None if ``TOPK_REPORT=off`` is in the environment.

    Raises:
        UserError: if the variable is neither ``on`` nor ``off``.
    """
    value = os.environ.get("TOPK_REPORT", "on")
    if value not in ("on", "off"):
        raise UserError(f"TOPK_REPORT must be on or off, got {value!r}")
    return partial(_draw, study, store) if value == "on" else None


def _draw(study: Study, store: str) -> Mapping[str, bytes]:
    from topk_platform.reports.page import report_files  # noqa: PLC0415 - needed only at the end of a study

    return report_files(study, store=store)


@dataclass
class Recorder:
    """Keeps trials' records: first in the ledger, then, in the background, in MLflow, which it starts to fill at once.

    Args:
        ledger: The study's ledger.
        writer: The ledger's writer.
        feed: Fills MLflow; None for no MLflow.
        pictures: Makes the report and the plots for MLflow; None for none.
        ran: How many trials have ended.
        tracking_error: Why MLflow is behind; empty if it is not.
    """

    ledger: Ledger
    writer: Writer
    feed: Feed | None = None
    pictures: Pictures | None = None
    ran: int = 0
    tracking_error: str = ""
    _ended: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.writer.committed = self._committed
        if self.feed is not None:
            self.feed.start()

    def keep(self, record: TrialRecord) -> None:
        """Hand a record to the ledger's writer; if earlier records could not be written, raise that error."""
        if self.writer.error is not None:
            raise self.writer.error
        self.writer.put(record)
        self.ran += 1

    def _committed(self, records: Sequence[TrialRecord]) -> None:
        """Hand committed trials to MLflow, and delete their checkpoints, which are no longer needed."""
        self._ended.update(record.trial.key for record in records)
        self._forget()
        if self.feed is not None:
            for record in records:
                self.feed.put(record)

    def _forget(self) -> None:
        """Delete the checkpoints of ended trials; if the store fails now, a later call deletes them."""
        with suppress(StoreError):  # the next run deletes what is left
            forget(self.ledger.store, self._ended)
            self._ended.clear()

    def close(
        self, whole: Study, known: Callable[[Study], dict[str, ArmHistory]], *, at_once: bool = False
    ) -> None:
        """Wait for the ledger, write the tables, wait for MLflow, and keep its error, if any.

        A further interrupt ends this without a wait for MLflow: the next run fills in what it lacks.

        Args:
            whole: The study as it is defined.
            known: Returns the histories of a study's arms.
            at_once: Whether only seconds are left. MLflow then gets no report.
        """
        try:
            self._flush()
            self._write_tables(whole, known(whole), None if at_once else self.pictures)
        except Exception:
            self._close_feed(at_once=at_once)
            raise
        self._close_feed(at_once=at_once)

    def _flush(self) -> None:
        self.writer.flush()
        if self.writer.error is not None:
            raise self.writer.error
        self._forget()

    def _close_feed(self, *, at_once: bool) -> None:
        if self.feed is not None:
            self.tracking_error = self.feed.close(_LAST_SECONDS) if at_once else self.feed.close()

    def _write_tables(
        self, whole: Study, histories: Mapping[str, ArmHistory], pictures: Pictures | None
    ) -> None:
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
        if self.feed is not None:
            texts = {name: files[name].decode() for name in files if not name.endswith(".parquet")}
            self.feed.put_files(texts, pictures)
