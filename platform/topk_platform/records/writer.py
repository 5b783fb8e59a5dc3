"""Writing the ledger: a thread that commits ended trials, and at the end two plain Parquet files for other tools."""

from __future__ import annotations

import io
import logging
import queue
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.errors import StoreError, reason
from topk_platform.records.rows import ledger_table, with_parameters
from topk_platform.records.storage.checked_json import SCHEMA_VERSION
from topk_platform.records.storage.delta import TakenOverError, Writing
from topk_platform.records.storage.lease import Lease
from topk_platform.records.storage.opened import one_line_errors
from topk_platform.records.storage.store import PAUSES
from topk_platform.specs import TrialRecord, digest

if TYPE_CHECKING:
    from topk_platform.records.ledger import Ledger

__all__ = ["Committed", "Writer", "is_current", "write_snapshot"]

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
        table: The table to write.
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
        self._table = table
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
            raise self._ended()

    def _ended(self) -> Exception:
        return self.error or StoreError(f"{self._store_name}: trial handed over after the end of writing")

    @property
    def _store_name(self) -> str:
        return f"store {self._table.store.uri!r}"

    def remove(self, keys: Sequence[str]) -> None:
        """Delete trials and their epochs from the ledger, before any record is handed over.

        Raises:
            StoreError: if the ledger cannot be written.
        """
        if keys:
            self._table.delete(keys)

    def copy(self, rows: pa.Table) -> None:
        """Write rows of another ledger, with its columns, before any record is handed over.

        Raises:
            StoreError: if the ledger cannot be written.
        """
        self._table.append(rows)

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
                self._tidy(self._table.compact)
            self._tidy(self._table.tidy)
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
        rows = ledger_table(records, self._table.schema)
        for pause in self._pauses:
            try:
                self._check_lease()
                self._table.append(rows)
            except TakenOverError:
                raise
            except StoreError as error:
                if self._hurried.is_set():
                    raise
                _LOG.warning("%s; trying again in %g s", error, pause)
                self._hurried.wait(pause)
            else:
                return
        self._check_lease()
        self._table.append(rows)

    def _check_lease(self) -> None:
        if self._lease.lost is not None:
            raise TakenOverError(f"{self._store_name}: {self._lease.lost}")


_EPOCHS, _TRIALS = "tables/epochs.parquet", "tables/trials.parquet"
_CONTENT = b"topk.content"


def is_current(ledger: Ledger, counting: Collection[str], others: Iterable[str] = ()) -> bool:
    """Return whether a whole snapshot is there of the ledger as it is now and of exactly these counting trials.

    Args:
        ledger: The ledger.
        counting: The keys of the trials that count.
        others: Further files that belong to the snapshot, by their paths in the study's folder.
    """
    if not all(map(ledger.store.exists, (_EPOCHS, *others))):
        return False
    try:
        metadata = pq.ParquetFile(io.BytesIO(ledger.store.read(_TRIALS))).schema_arrow.metadata
    except (OSError, pa.ArrowException):  # missing or damaged
        return False
    # Another program may have written the file again, without metadata.
    return bool(metadata and metadata.get(_CONTENT) == _digest(ledger, counting))


def _digest(ledger: Ledger, counting: Collection[str]) -> bytes:
    """Return a digest of what a snapshot shows; a trial that ran again has the same key but ended later."""
    trials = ledger.read("trials", ["key", "ended"])
    shown = [trials[name].cast(pa.string()).to_pylist() for name in trials.column_names]
    return digest([shown, sorted(counting)]).encode()


def write_snapshot(ledger: Ledger, counting: Collection[str]) -> None:
    """Write ``tables/epochs.parquet``, then ``tables/trials.parquet``.

    :func:`is_current` reads the second file alone, so the other files of a snapshot must be written before it.

    The first has a row per trial and epoch. The second has a row per trial and seed, and a column ``param.NAME`` for
    each parameter. Its column ``counts`` says whether a row counts in the table of the study as it is defined now: its
    code, data and machine are the present ones, and it is within the budget. A confirmation must also be of the
    configuration that is now the best.

    If no trial has ended yet, nothing is written.
    """
    trials = ledger.read("trials")
    if not trials.num_columns:
        return
    trials = with_parameters(trials)
    metadata = {b"topk.schema_version": str(SCHEMA_VERSION).encode(), _CONTENT: _digest(ledger, counting)}
    counts = pc.is_in(trials["key"], pa.array(sorted(counting), pa.string()))
    trials = trials.add_column(1, "counts", counts)
    with tempfile.TemporaryDirectory() as folder, one_line_errors(ledger.store):
        for name, batches in ((_EPOCHS, ledger.stream("epochs")), (_TRIALS, trials.to_reader())):
            file = Path(folder) / Path(name).name
            with pq.ParquetWriter(file, batches.schema.with_metadata(metadata), compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch.cast(writer.schema))
            ledger.store.write(name, file)
