"""Writing the ledger: the rows of an ended trial, and a thread that commits them."""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import pyarrow as pa

from topk_platform.errors import StoreError, reason
from topk_platform.records.storage.delta import TakenOverError, Writing
from topk_platform.records.storage.lease import Lease
from topk_platform.records.storage.store import PAUSES
from topk_platform.specs import Schedule, TrialRecord, canonical_json

__all__ = ["EPOCHS_ONLY", "Committed", "Writer", "epoch_rows", "ledger_schema", "ledger_table", "trial_row"]

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = ("study", "arm", "arm_id", "regime", "model", "loss", "phase")
_MORE_TEXTS = ("status", "reason", "values", "config")
_LAST_TEXTS = ("code_version", "dataset_fingerprint", "versions", "artifacts", "own")
EPOCHS_ONLY = ("epoch", "train.loss", "train.gradient_density", "seconds", "step_seconds", "learning_rate")
"""The columns that only rows of epochs use."""


def ledger_schema(metrics: Sequence[str]) -> pa.Schema:
    """Return the ledger's columns for a study's metrics: ``kind`` says whether a row is about a trial or an epoch.

    Both kinds are in one table so that a trial and its epochs are committed together. ``values`` holds the parameters
    as JSON, because a study's parameters may change: a parameter may be added, and a number may become a text.
    """
    fields = [pa.field(name, pa.string()) for name in ("kind", "key", *_TEXTS)]
    fields += [pa.field(name, pa.int64()) for name in ("number", "seed")]
    fields += [pa.field(name, pa.string()) for name in _MORE_TEXTS]
    fields += [pa.field(f"{split}.{m}", pa.float64()) for split in ("validation", "test") for m in metrics]
    fields += [pa.field("train_seconds", pa.float64()), pa.field("epochs", pa.int64())]
    fields += [pa.field(name, _TIME) for name in ("started", "ended")]
    fields += [pa.field(name, pa.string()) for name in _LAST_TEXTS]
    fields += [pa.field(name, pa.int64() if name == "epoch" else pa.float64()) for name in EPOCHS_ONLY]
    return pa.schema(fields)


def ledger_table(records: Iterable[TrialRecord], schema: pa.Schema) -> pa.Table:
    """Return the rows of records: one for each trial, and one for each of its epochs."""
    rows: list[dict[str, Any]] = []
    for record in records:
        rows += [{"kind": "trials", **trial_row(record)}]
        rows += [{"kind": "epochs", **row} for row in epoch_rows(record)]
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if field.type == _TIME:  # for datetimes, Arrow would import pandas
            values = [None if value is None else round(value.timestamp() * 1e6) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def trial_row(record: TrialRecord) -> dict[str, Any]:
    """Return the row of a record's trial."""
    trial, arm = record.trial, record.trial.arm
    values = {n: str(v) if isinstance(v, Schedule) else v for n, v in trial.parameters.items()}
    files = {"missing": record.missing, "sha256": record.artifacts}
    return {
        "key": trial.key,
        "study": trial.study,
        "arm": arm.name,
        "arm_id": trial.arm_id,
        "regime": arm.regime.name,
        "model": arm.model.label,
        "loss": arm.loss.label,
        "phase": trial.phase,
        "number": trial.number,
        "seed": trial.seed,
        "status": record.status,
        "reason": record.reason,
        "values": json.dumps(values),
        "config": trial.to_json(),
        **_prefixed("validation", record.validation),
        **_prefixed("test", record.test or {}),
        "train_seconds": record.train_seconds,
        "epochs": record.epochs[-1].epoch if record.epochs else 0,
        "started": datetime.fromtimestamp(record.started, UTC),
        "ended": datetime.fromtimestamp(record.ended, UTC),
        "code_version": trial.code_version,
        "dataset_fingerprint": trial.dataset_fingerprint,
        "versions": canonical_json(record.versions),
        "artifacts": canonical_json(files) if any(files.values()) else None,
        "own": record.own or None,
    }


def epoch_rows(record: TrialRecord) -> list[dict[str, Any]]:
    """Return the rows of a record's epochs."""
    return [
        {
            "key": record.trial.key,
            "epoch": epoch.epoch,
            "train.loss": epoch.train_loss,
            "train.gradient_density": epoch.gradient_density,
            **_prefixed("validation", epoch.validation),
            "seconds": epoch.seconds,
            "step_seconds": epoch.step_seconds,
            "learning_rate": epoch.learning_rate,
        }
        for epoch in record.epochs
    ]


def _prefixed(prefix: str, items: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in items.items()}


Committed = Callable[[Sequence[TrialRecord]], None]
"""Called with the records that have been committed to the ledger."""

_LOG = logging.getLogger("topk_platform")
_MOST = 1000  # trials of one commit, which bounds its memory


class Writer(threading.Thread):
    """A thread that commits ended trials in order: each at once, or many together if they end fast.

    If the store cannot be written, the writer tries again with growing pauses for some minutes, while records wait.
    If the store still refuses after that, the reason is in :attr:`error` and nothing more is written. After
    :meth:`hurry`, which a user's interrupt calls, the writer tries once more without a pause.

    At the end, the number of committed records must equal the number of records that were handed over. Any difference
    is also an error.

    Args:
        table: The table to write; other threads may write it before any record is handed over.
        lease: The right to write it.
        pauses: Seconds between tries.

    Attributes:
        committed: Called in this thread with committed records; set it before handing anything over.
        error: Why nothing more is written; None if there was no error.
    """

    def __init__(self, table: Writing, lease: Lease, pauses: Sequence[float] = PAUSES) -> None:
        super().__init__(name="ledger", daemon=True)
        self.error: Exception | None = None
        self.committed: Committed = lambda _records: None
        self.table = table
        self._lease = lease
        self._pauses = pauses
        self._queue: queue.SimpleQueue[TrialRecord | None] = queue.SimpleQueue()
        self._hurried = threading.Event()
        self._handed_over = self._written = 0

    def put(self, record: TrialRecord) -> None:
        """Hand over an ended trial, without waiting until it is written.

        Raises:
            StoreError: if nothing more is written, because of an error or because the thread has ended.
        """
        self.check()
        self._handed_over += 1
        self._queue.put(record)

    def check(self) -> None:
        """Raise the error that ended the writing, if it has ended.

        Raises:
            StoreError: if nothing more is written, because of an error or because the thread has ended.
        """
        if self.ident is not None and not self.is_alive():
            raise self.error or StoreError(f"{self._store_name}: trial handed over after the end of writing")

    @property
    def _store_name(self) -> str:
        return f"store {self.table.store.uri!r}"

    def __enter__(self) -> Writer:
        """Start to write."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until all is written.

        Raises:
            StoreError: if something could not be written.
        """
        self.flush()
        if error is None and self.error is not None:
            raise self.error

    def flush(self) -> None:
        """Write everything that was handed over, then end the thread. An error is in :attr:`error`."""
        if self.is_alive():
            self._queue.put(None)
            self.join()
        if self.error is None and self._written != self._handed_over:
            self.error = StoreError(
                f"{self._store_name}: {self._handed_over} trials were handed over to the ledger, but only "
                f"{self._written} of them were committed: run the same command again"
            )

    def hurry(self) -> None:
        """Stop pausing between tries: if the next try fails, the writing ends."""
        self._hurried.set()

    def run(self) -> None:
        """Commit waiting records until :meth:`flush`, or until a store has refused for too long."""
        try:
            while (records := self._waiting()) is not None:
                self._commit(records)
                self._written += len(records)
                self.committed(records)
                self._tidy(self.table.compact)
            self._tidy(self.table.tidy)
        except Exception as error:  # noqa: BLE001 - in a thread nobody else sees it; raised when the thread is joined
            self.error = error
        except BaseException as error:  # noqa: BLE001 - as above; a panic of a Rust library is not an Exception
            self.error = StoreError(
                f"{self._store_name} cannot be written: {type(error).__name__}: {reason(error)}"
            )
            self.error.__cause__ = error

    def _tidy(self, compact: Callable[[], None]) -> None:
        """Merge small parts. All records are written by then, so an error of the store only leaves a warning."""
        try:
            compact()
        except StoreError as error:
            _LOG.warning("the small files of the ledger were not merged: %s", error)

    def _waiting(self) -> list[TrialRecord] | None:
        """Return the waiting records, at least one; None at the end."""
        records: list[TrialRecord] = []
        while (record := self._queue.get()) is not None:
            records.append(record)
            if self._queue.empty() or len(records) == _MOST:
                return records
        self._queue.put(None)  # so that the next call ends, after the last records
        return records or None

    def _commit(self, records: Sequence[TrialRecord]) -> None:
        rows = ledger_table(records, self.table.schema)
        for pause in (*self._pauses, None):
            try:
                self._check_lease()
                self.table.append(rows)
            except TakenOverError:
                raise
            except StoreError as error:
                if pause is None or self._hurried.is_set():
                    raise
                _LOG.warning("%s; trying again in %g s", error, pause)
                self._hurried.wait(pause)
            else:
                return

    def _check_lease(self) -> None:
        if self._lease.lost is not None:
            raise TakenOverError(f"{self._store_name}: {self._lease.lost}")
