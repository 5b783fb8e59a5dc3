"""Writing a study's table in Delta Lake, by the one process that drives the study."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from topk_platform.errors import StoreError
from topk_platform.records.storage.backends import sync
from topk_platform.records.storage.checked_json import FOLDER
from topk_platform.records.storage.checksums import AFTER, CHECKPOINT_INTERVAL, LOG, Checksums, log_name
from topk_platform.records.storage.opened import Opened, address, exists, one_line_errors
from topk_platform.records.storage.store import Store

__all__ = ["TakenOverError", "Writing"]

_DRIVER = "driver"
_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
}
_COMMITS = 64  # between two compactions; a compaction takes about as long as five commits
_TRIES = 10  # to take over, because the previous driver may still be committing
_FEW = 16  # small parts, which do not slow readers down
# Larger parts are compacted only at the end, so that the work of a compaction does not grow with the study.
_PART_BYTES = 8 * 2**20
_WHOLE_BYTES = 128 * 2**20
_KEPT_HOURS = 1  # old parts are kept this long, for readers that began before a compaction


class TakenOverError(StoreError):
    """Another process drives the study now, so this process must not write to it."""


@dataclass
class Writing:
    """A table that only this process may write. Earlier writers fail from then on.

    Each commit has its driver's number. If two commits with such a number are concurrent, Delta Lake accepts only one.
    A new driver begins with a commit that takes the next number. After each commit, the checksums of the table are
    written.

    Args:
        store: The study's folder.
        schema: The columns of the table. Further columns that it has already stay.
        folder: The table's folder in the study's folder, made if it is missing; by default the one that the study's
            mark names.

    Raises:
        StoreError: if the table cannot be read or written.
    """

    store: Store
    schema: pa.Schema
    folder: str = ""
    _table: DeltaTable = field(init=False)
    _number: int = field(init=False)
    _token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _commits: int = 0
    _sums: Checksums | None = field(default=None, init=False)
    _own: Checksums | None = field(default=None, init=False)  # the checksums that this process has written
    # The parts that the last commit has added.
    _new: list[dict[str, Any]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if not (self.store.exists(f"{self.folder}/{LOG}") if self.folder else exists(self.store)):
            self._create()
        opened = Opened.of(self.store, self.folder or None)
        self.folder, self._table, self._sums = opened.folder, opened.table, opened.sums
        opened.check_without_checksums()  # they get checksums now, and would pass as sound
        with one_line_errors(self.store, "written"):
            self._sum()
            self._take_over()
            self._sum()

    def _create(self) -> None:
        uri, options = address(self.store, self.folder or FOLDER)
        with one_line_errors(self.store, "written"):
            DeltaTable.create(
                uri, self.schema, "ignore", ["kind"], configuration=_CONFIGURATION, storage_options=options
            )

    def _take_over(self) -> None:
        for tries_left in reversed(range(_TRIES)):
            self._number = (self._table.transaction_version(_DRIVER) or 0) + 1
            try:
                self._table.create_write_transaction(
                    [], "append", self._table.schema(), commit_properties=self._signed(0)
                )
            except CommitFailedError:  # the previous driver may have been in the middle of a commit
                if not tries_left:
                    raise
            else:
                break
            finally:
                self._table.update_incremental()

    def _signed(self, commit: int | None = None) -> CommitProperties:
        """Return a commit's metadata: the version before it and, except for compactions, its driver's number."""
        after = {AFTER: str(self._sums.version if self._sums else self._table.version())}
        if commit is None:
            return CommitProperties(custom_metadata=after)
        numbers = [Transaction(_DRIVER, self._number), Transaction(self._token, commit)]
        return CommitProperties(custom_metadata=after, app_transactions=numbers)

    def _sum(self) -> None:
        """Write the checksums of the last commits."""
        if self._sums is None or self._sums.version != self._table.version():
            sums = Checksums.of(self.store, self.folder, self._table, self._sums)
            sums.write(self.store, self.folder, self._own)
            self._sums = self._own = sums

    def append(self, rows: pa.Table) -> None:
        """Commit rows, all or none, and flush them to the disk.

        After a failure, call it again with the same rows. It then detects whether they were committed already.

        Raises:
            TakenOverError: if another process writes the table now.
            StoreError: if it cannot be written, or the number of committed rows is not that of the given rows.
        """
        self._commit(
            lambda signed: write_deltalake(
                self._table, rows, mode="append", schema_mode="merge", commit_properties=signed
            )
        )
        committed = sum(json.loads(action["stats"])["numRecords"] for action in self._new)
        if committed != len(rows):
            raise StoreError(
                f"store {self.store.uri!r}: {len(rows)} rows were written to the ledger, but {committed} were committed"
            )

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the trials with these keys and their epochs, in one commit.

        Raises:
            TakenOverError: if another process writes the table now.
            StoreError: if a part is damaged, or the table cannot be written.
        """
        if keys:
            names = ", ".join(f"'{key}'" for key in keys)
            self._check_parts()
            self._commit(lambda signed: self._table.delete(f"key in ({names})", commit_properties=signed))

    def _check_parts(self) -> None:
        """Compare all parts with their checksums, because rows rewritten from a damaged part would pass as sound."""
        Opened(self.store, self.folder, self._table, self._sums).check_parts(again=True)

    def _commit(self, write: Callable[[CommitProperties], Any]) -> None:
        number = self._commits + 1
        self.store.check_disk()
        with one_line_errors(self.store, "written"):
            self._table.update_incremental()
            if self._table.transaction_version(_DRIVER) != self._number:
                raise TakenOverError(f"store {self.store.uri!r}: another process has taken over the study")
            # If the number is there, the last try has committed and failed later.
            if self._table.transaction_version(self._token) != number:
                write(self._signed(number))
            self._sync()
            self._sum()
        self._commits = number

    def _sync(self) -> None:
        """Flush the last commit to the disk. An object store has done so before it answers."""
        files = self.store.at(self.folder)
        actions = map(json.loads, files.read(log_name(self._table.version())).splitlines())
        self._new, root = [action["add"] for action in actions if "add" in action], files.local
        if root is None:
            return
        log = root / log_name(self._table.version())
        parts = [root / unquote(action["path"]) for action in self._new]
        for path in (*parts, log, *{path.parent for path in (*parts, log)}):
            sync(path)

    def compact(self) -> None:
        """Compact small files after every 64 commits.

        Raises:
            StoreError: if it fails; nothing is lost, and the call after 64 more commits tries again, because a try may
                read the whole table.
        """
        if self._commits % _COMMITS == 0:
            self._compact(_PART_BYTES)

    def tidy(self) -> None:
        """Compact small files if there are many, at the end of a run.

        Raises:
            StoreError: if it fails; nothing is lost.
        """
        if len(self._table.file_uris()) > _FEW:
            self._compact(_WHOLE_BYTES)

    def _compact(self, size: int) -> None:
        """Compact files below a size in bytes. The old files are deleted after an hour or later."""
        self.store.check_disk()
        self._check_parts()
        with one_line_errors(self.store, "written"):
            self._table.optimize.compact(target_size=size, commit_properties=self._signed())
            self._sync()
            self._sum()
            self._table.vacuum(
                _KEPT_HOURS, dry_run=False, enforce_retention_duration=False, commit_properties=self._signed()
            )
            self._sum()
