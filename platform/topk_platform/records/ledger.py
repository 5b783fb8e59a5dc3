"""The ledger: the one source of truth, append-only Parquet parts that plain tools read.

``<store>/<study>/trials/*.parquet`` holds a row per (trial, seed), ``epochs/*.parquet`` a row per trial and
epoch. A part is named by its trial's key, epochs are written first, and the trial's row is the commit mark: a
trial that was written twice overwrites itself, and one that was not is simply not there. Compaction turns many
parts into one; it is journalled, so that a kill in its middle loses and doubles nothing. The merged part is there
before the old ones go, and a :class:`Ledger` reads each row once: a reader beside a writer misses nothing. Another
tool may meet rows twice at that moment, which ``distinct on (key)`` mends.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.records.schema import (
    SCHEMA_VERSION,
    epochs_schema,
    epochs_table,
    merge,
    trials_schema,
    trials_table,
)
from topk_platform.records.store import Store
from topk_platform.specs import Study, TrialRecord, digest

__all__ = ["Ledger", "Row"]

Row = dict[str, Any]
"""One row of a table."""

_MARK = "ledger.json"
_JOURNAL = "compaction.json"
_IDENTITIES = "identities.json"
_KINDS = ("trials", "epochs")
_MANY_PARTS = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LISTINGS = 5


@dataclass
class Ledger:
    """One study's records in a store.

    Args:
        store: The study's own folder.
        study: The study's name.
    """

    store: Store
    study: str
    _schemas: dict[str, pa.Schema] = field(default_factory=dict)

    @classmethod
    def open(cls, store: Store, study: str) -> Ledger:
        """Return the ledger of ``study`` in ``store``; nothing is written, and it need not exist yet.

        Raises:
            StoreError: if the folder holds another study's records, something else, or a newer schema's.
        """
        ledger = cls(store.at(study), study)
        ledger._check_mark()
        return ledger

    def _check_mark(self) -> None:
        if not self.store.exists(_MARK):
            if self.store.exists() and (self.store.names() or self.store.folders()):
                raise StoreError(
                    f"store {self.store.uri!r} is not empty and holds no ledger: choose another --store"
                )
            return
        try:
            mark = json.loads(self.store.read(_MARK))
            name, version = str(mark["study"]), int(mark["schema_version"])
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise StoreError(f"store {self.store.uri!r}: {_MARK} cannot be read: {error!r}") from error
        if name != self.study:
            raise StoreError(
                f"store {self.store.uri!r} holds the records of study {name!r}, not of {self.study!r}"
            )
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"store {self.store.uri!r} has schema version {version}; this program knows up to {SCHEMA_VERSION}"
            )

    @property
    def exists(self) -> bool:
        """Whether anything was ever written here."""
        return self.store.exists(_MARK)

    @contextmanager
    def writing(self, study: Study) -> Iterator[None]:
        """Hold the ledger for writing: finish what a killed writer left, and fit old parts to the study's columns.

        Raises:
            StoreError: if it cannot be written, or another process is writing it.
        """
        with self._locked():
            if not self.exists:
                mark = {"study": self.study, "schema_version": SCHEMA_VERSION}
                self.store.write(_MARK, json.dumps(mark).encode())
            self._finish_compaction()
            self._schemas = {kind: self._fitted(kind, study) for kind in _KINDS}
            yield
            self.compact(_MANY_PARTS)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self.store.local is None:  # object stores have no locks; keys make double writes harmless
            yield
            return
        try:
            self.store.local.mkdir(parents=True, exist_ok=True)
            with FileLock(self.store.local / ".lock", timeout=0):
                yield
        except Timeout as error:
            raise StoreError(f"store {self.store.uri!r} is being written by another process") from error

    def _fitted(self, kind: str, study: Study) -> pa.Schema:
        wanted = trials_schema(study) if kind == "trials" else epochs_schema(study)
        found = [self._part_schema(kind, name) for name in self.store.names(kind, ".parquet")]
        for schema in found:
            wanted = merge(wanted, schema)
        if any(schema.remove_metadata() != wanted.remove_metadata() for schema in found):
            self._schemas[kind] = wanted
            self._compact(kind)
        return wanted

    def _part_schema(self, kind: str, name: str) -> pa.Schema:
        with self.store.filesystem.open_input_file(self.store.path(kind, name)) as source:
            return pq.read_schema(source)

    def identities(self) -> dict[str, Identity]:
        """Return which rows counted in the last run, by arm identity; empty where there was none yet."""
        if not self.store.exists(_IDENTITIES):
            return {}
        found: dict[str, dict[str, Any]] = json.loads(self.store.read(_IDENTITIES))
        return {arm_id: Identity(**fields) for arm_id, fields in found.items()}

    def identify(self, identities: Mapping[str, Identity]) -> None:
        """Note which rows count from now on, inside :meth:`writing` only, for those who read the ledger later."""
        found = {arm_id: dataclasses.asdict(identity) for arm_id, identity in identities.items()}
        self.store.write(_IDENTITIES, json.dumps(found, indent=1).encode())

    def append(self, record: TrialRecord) -> tuple[Row, list[Row]]:
        """Write an ended trial, inside :meth:`writing` only, and return its row and its epochs' rows.

        Raises:
            StoreError: if it cannot be written.
        """
        part = f"{record.trial.key}.parquet"
        epochs = epochs_table([record], self._schemas["epochs"])
        trials = trials_table([record], self._schemas["trials"])
        if len(epochs):
            self._write("epochs", part, epochs)
        self._write("trials", part, trials)
        return trials.to_pylist()[0], epochs.to_pylist()

    def _write(self, kind: str, name: str, table: pa.Table) -> None:
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        self.store.write(f"{kind}/{name}", buffer.getvalue())

    def read(self, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the ``"trials"`` or ``"epochs"`` table.

        Args:
            kind: Which table.
            columns: The columns wanted; all by default.
        """
        for _ in range(_LISTINGS - 1):
            try:
                return self._read(kind, columns)
            except FileNotFoundError:  # compaction has put another part in the place of one that was listed
                continue
        return self._read(kind, columns)

    def _read(self, kind: str, columns: Sequence[str] | None) -> pa.Table:
        wanted = None if columns is None else list(dict.fromkeys(("key", *columns)))
        tables = [self._read_part(kind, name, wanted) for name in self.store.names(kind, ".parquet")]
        if not tables:
            return pa.table({})
        schema = reduce(merge, (table.schema for table in tables))
        found = pa.concat_tables(_conform(table, schema) for table in _distinct(tables))
        return found if columns is None else found.select([c for c in columns if c in schema.names])

    def _read_part(self, kind: str, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        # Not pq.read_table, which imports pandas, as long as all the rest takes.
        with self.store.filesystem.open_input_file(self.store.path(kind, name)) as source:
            part = pq.ParquetFile(source)
            known = set(part.schema_arrow.names)
            return part.read(None if columns is None else [c for c in columns if c in known])

    def rows(self) -> list[Row]:
        """Return the ``trials`` rows as dictionaries."""
        table = self.read("trials")
        moments = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        # Arrow would make datetimes of them by pandas, whose import takes as long as all the rest.
        for name in moments:
            table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.int64()))
        rows: list[Row] = table.to_pylist()
        for row in rows:
            row |= {name: _moment(row[name]) for name in moments}
        return rows

    def keys(self) -> list[str]:
        """Return the keys of all ended trials."""
        table = self.read("trials", ["key"])
        return table["key"].to_pylist() if table.num_columns else []

    def compact(self, at_least: int = 2) -> None:
        """Turn the parts of each table into one, where there are at least so many."""
        for kind in _KINDS:
            if len(self.store.names(kind, ".parquet")) >= at_least:
                self._compact(kind)

    def remove(self, keys: Sequence[str]) -> None:
        """Forget trials and their epochs, inside :meth:`writing` only; a kill in its middle leaves epochs of none."""
        if keys:
            self._compact("trials", without=keys)
            if self.store.names("epochs", ".parquet"):
                self._compact("epochs")

    def _compact(self, kind: str, without: Sequence[str] = ()) -> None:
        names = self.store.names(kind, ".parquet")
        merged = _conform(self.read(kind), self._schemas[kind])
        if without:
            merged = merged.filter(_is_none_of(merged["key"], without))
        if kind == "epochs":  # of a trial whose row was never written, nothing stays
            ended = self.read("trials", ["key"])["key"] if self.store.names("trials", ".parquet") else []
            merged = merged.filter(pc.is_in(merged["key"], pa.array(ended, pa.string())))
        merged = merged.sort_by(
            [("key", "ascending"), *([("epoch", "ascending")] if kind == "epochs" else [])]
        )
        place = f"{kind}/part-{digest(tuple(names))}.parquet"
        self._write("compaction", f"{kind}.parquet", merged)
        journal = {"kind": kind, "delete": names, "place": place}
        self.store.write(_JOURNAL, json.dumps(journal).encode())
        self._finish_compaction()

    def _finish_compaction(self) -> None:
        if not self.store.exists(_JOURNAL):
            return
        journal = json.loads(self.store.read(_JOURNAL))
        # From here on every step may be repeated, for the staged part goes last; readers never see a hole.
        self.store.write(journal["place"], self.store.read(f"compaction/{journal['kind']}.parquet"))
        for name in journal["delete"]:
            if f"{journal['kind']}/{name}" != journal["place"]:
                self.store.delete(f"{journal['kind']}/{name}")
        self.store.delete(_JOURNAL)
        self.store.delete(f"compaction/{journal['kind']}.parquet")


def _distinct(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield each part without the trials of earlier ones: a compaction that is under way has them twice, and whole."""
    # Not by Arrow's group_by, which imports pandas, as long as all the rest takes.
    known: set[str] = set()
    for part in parts:
        keys = set(part["key"].unique().to_pylist())
        again = known & keys
        known |= keys
        yield part.filter(_is_none_of(part["key"], list(again))) if again else part


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)


def _is_none_of(column: pa.ChunkedArray, values: Sequence[str]) -> pa.ChunkedArray:
    return pc.invert(pc.is_in(column, pa.array(values, pa.string())))


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        _cast(table[field.name], field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)
