"""Keeping trials' records: in the ledger, in MLflow, and in the tables at the end of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from topk_platform.errors import StoreError, UserError
from topk_platform.records import (
    ArmHistory,
    Extras,
    Graphs,
    Ledger,
    TrackingSink,
    Writer,
    forget,
    is_current,
    read_all_ranks,
    results_of,
    write_snapshot,
)
from topk_platform.reports import to_files
from topk_platform.reports.arm_notes import arms_to_json
from topk_platform.results import build_table
from topk_platform.specs import Study, TrialRecord

__all__ = ["Recorder", "extras_of", "report_wanted"]

_HURRIED_SECONDS = 2.0


def report_wanted() -> bool:
    """Return whether MLflow gets a study's report, plots and graphs: unless the environment has ``TOPK_REPORT=off``.

    Raises:
        UserError: if the variable is neither ``on`` nor ``off``.
    """
    told = os.environ.get("TOPK_REPORT", "on")
    if told not in ("on", "off"):
        raise UserError(f"TOPK_REPORT must be on or off, got {told!r}")
    return told == "on"


def extras_of(study: Study, store: str) -> Extras:
    """Return what MLflow gets of a study beside its trials and tables.

    Args:
        study: The study.
        store: Folder or URI of the results.
    """

    def pictures() -> Mapping[str, bytes]:
        from topk_platform.reports.page import report_files  # noqa: PLC0415 - of the study's end alone

        return report_files(study, store=store)

    def graphs() -> Graphs:
        from topk_platform.serving.graphs import study_graphs  # noqa: PLC0415 - as above

        return study_graphs(study, store)

    return Extras(pictures, graphs)


@dataclass
class Recorder:
    """Keeps trials' records: first in the ledger, then, in the background, in MLflow.

    Args:
        ledger: The study's ledger.
        writer: The ledger's writer.
        sink: The MLflow sink, if any.
        extras: Returns what the sink gets of a study beside its tables; None for nothing.
        ran: How many trials have ended.
        tracking_error: What kept MLflow from being written, if anything did.
        hurry: Whether there are only seconds left for MLflow, which then gets no report; the next run goes on there.
    """

    ledger: Ledger
    writer: Writer
    sink: TrackingSink | None
    extras: Callable[[Study], Extras] | None = None
    ran: int = 0
    tracking_error: Exception | None = None
    hurry: bool = False
    _ended: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.writer.committed = self._committed

    def __call__(self, record: TrialRecord) -> None:
        """Keep a record; raise the error that kept earlier ones from being written, if any."""
        if self.writer.error is not None:
            raise self.writer.error
        self.writer.put(record)
        self.ran += 1

    def _committed(self, records: Sequence[TrialRecord]) -> None:
        """Bring committed trials to MLflow, and delete their checkpoints, which are no longer needed."""
        self._ended.update(record.trial.key for record in records)
        self._forget()
        if self.sink is not None:
            for record in records:
                self.sink.put(record)

    def _forget(self) -> None:
        """Delete the checkpoints of ended trials; if the store is gone meanwhile, with the next ones, or at the end."""
        with suppress(StoreError):  # the next start sweeps what is left even then
            forget(self.ledger.store, self._ended)
            self._ended.clear()

    def close(self, whole: Study, known: Callable[[Study], dict[str, ArmHistory]]) -> None:
        """Wait for the ledger, write the tables, wait for the sink, and keep the sink's error, if any."""
        try:
            self.writer.flush()
            if self.writer.error is not None:
                raise self.writer.error
            self._forget()
            self._write_tables(whole, known(whole))
        finally:
            self.tracking_error = None if self.sink is None else self._close_sink(self.sink)

    def _close_sink(self, sink: TrackingSink) -> Exception | None:
        return sink.close(_HURRIED_SECONDS) if self.hurry else sink.close()

    def _write_tables(self, whole: Study, histories: Mapping[str, ArmHistory]) -> None:
        store = self.ledger.store
        table = build_table(whole, histories, ranks=partial(read_all_ranks, store))
        files = to_files(table) | {"arms.json": arms_to_json(table, histories).encode()}
        for name, content in files.items():
            store.write(f"tables/{name}", content)
        results = results_of(whole, histories).values()
        counting = {row["key"] for arm in results for row in arm.counting()}
        if self.ran or not is_current(store, counting):
            write_snapshot(self.ledger, counting)
        if self.sink is not None:
            texts = {name: files[name].decode() for name in files if not name.endswith(".parquet")}
            wanted = None if self.hurry else self.extras
            self.sink.put_files(texts, None if wanted is None else wanted(whole))
