"""What follows a trial's record in the ledger: its run in MLflow, and the tables at the end of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from topk_platform.errors import StoreError, UserError
from topk_platform.records.history import StudyRows, results_of
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


@dataclass(frozen=True)
class Recorder:
    """Passes trials that are in the ledger on to MLflow, and writes the tables at the end of a run.

    Args:
        rows: The rows of the study's ledger.
        writer: The ledger's writer.
        feed: Fills MLflow, from now on in the background; None for no MLflow.
    """

    rows: StudyRows
    writer: Writer
    feed: Feed | None = None

    def __post_init__(self) -> None:
        self.writer.committed = self._committed
        if self.feed is not None:
            self.feed.start()

    def _committed(self, records: Sequence[TrialRecord]) -> None:
        """Hand committed trials to MLflow, and delete their checkpoints, which are no longer needed."""
        with suppress(StoreError):  # the next run deletes what is left
            forget(self.rows.ledger.store, [record.trial.key for record in records])
        if self.feed is not None:
            for record in records:
                self.feed.put(record)

    def close(self, whole: Study, *, at_once: bool = False) -> str:
        """Wait for the ledger, write the tables, and wait for MLflow; return why MLflow is behind, or nothing.

        A further interrupt ends this without a wait for MLflow: the next run fills in what it lacks.

        Args:
            whole: The study as it is defined.
            at_once: Whether only seconds are left. MLflow then gets no report.
        """
        try:
            files = self._write_tables(whole)
        except Exception:
            if self.feed is not None:
                self.feed.close(at_once=at_once)
            raise
        return "" if self.feed is None else self.feed.close(files, at_once=at_once)

    def _write_tables(self, whole: Study) -> Mapping[str, str]:
        self.writer.flush()
        if self.writer.error is not None:
            raise self.writer.error
        ledger, histories = self.rows.ledger, self.rows.histories(whole)
        store = ledger.store
        ranks = partial(read_all_ranks, store)
        table = build_table(whole, histories, ranks=ranks)
        files = to_files(table) | {ARMS: arms_to_json(table, histories).encode()}
        for name, content in files.items():
            store.write(f"tables/{name}", content)
        results = results_of(whole, histories).values()
        counting = {row["key"] for arm in results for row in arm.counting()}
        if not is_current(ledger, counting, [f"tables/{CLASSES}"]):
            for name, content in classes_to_files(table, class_results(table, store, ranks)).items():
                store.write(f"tables/{name}", content)
            write_snapshot(ledger, counting)  # last, because is_current reads it
        return {name: files[name].decode() for name in files if not name.endswith(".parquet")}
