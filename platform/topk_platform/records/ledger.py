"""The ledger: the one source of truth, an append-only table in Delta Lake that any number of processes may read.

``<store>/<study>/ledger`` holds a row per (trial, seed) and a row per trial and epoch, told apart by ``kind``, so
that one commit holds a trial with all its epochs or none of it. A :class:`Lease` decides who writes; the table also
refuses commits of a driver that was replaced by another one. Other tools read the two plain Parquet files that
:func:`~topk_platform.records.write_snapshot` makes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable

from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.records import delta
from topk_platform.records.adopted import read_adopted
from topk_platform.records.lease import Lease
from topk_platform.records.schema import EPOCHS_ONLY, SCHEMA_VERSION, ledger_schema
from topk_platform.records.store import MARK, Store
from topk_platform.records.versions import check_version, raised
from topk_platform.records.views import Row, to_rows
from topk_platform.records.writer import Writer
from topk_platform.specs import Study

__all__ = ["Ledger"]

Kind = Literal["trials", "epochs"]

_IDENTITIES = "identities.json"
_ORDER = {"trials": "key", "epochs": "key, epoch"}


@dataclass
class Ledger:
    """One study's records in a store.

    Args:
        store: The study's own folder.
        study: The study's name.
    """

    store: Store
    study: str

    @classmethod
    def open(cls, store: Store, study: str) -> Ledger:
        """Return the ledger of ``study`` in ``store``; nothing is written, and it need not exist yet.

        Raises:
            StoreError: if the folder holds another study's records, something else, or another schema's.
        """
        ledger = cls(store.at(study), study)
        ledger._check_mark()
        return ledger

    def _check_mark(self) -> None:
        if not self.exists:
            if self.store.names() or self.store.folders():
                raise StoreError(
                    f"store {self.store.uri!r} is not empty and holds no ledger: choose another --store"
                )
            return
        try:
            mark = json.loads(self.store.read(MARK))
            name, version = str(mark["study"]), int(mark["schema_version"])
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise StoreError(f"store {self.store.uri!r}: {MARK} cannot be read: {error!r}") from error
        if name != self.study:
            raise StoreError(
                f"store {self.store.uri!r} holds the records of study {name!r}, not of {self.study!r}"
            )
        check_version(self.store.uri, version)

    @property
    def exists(self) -> bool:
        """Whether anything was ever written here."""
        return self.store.exists(MARK)

    @property
    def identity(self) -> str:
        """An identity that no other ledger has, not even one of a study with the same name."""
        return str(json.loads(self.store.read(MARK)).get("identity", ""))

    @contextmanager
    def writing(self, study: Study) -> Iterator[Writer]:
        """Hold the ledger for writing; at the end, everything handed over has been written.

        Args:
            study: The study, which gives the columns; further columns in the ledger stay.

        Raises:
            StoreError: if it cannot be written, or another process is writing it.
        """
        with Lease(self.store) as lease:
            if not self.exists:
                mark = {"study": self.study, "schema_version": SCHEMA_VERSION, "identity": uuid.uuid4().hex}
                self.store.write(MARK, json.dumps(mark).encode())
            elif (mark_now := raised(json.loads(self.store.read(MARK)))) is not None:
                self.store.write(MARK, json.dumps(mark_now).encode())
            with Writer(delta.Writing(self.store, ledger_schema(study)), lease) as writer:
                yield writer

    def identities(self) -> dict[str, Identity]:
        """Return which rows counted in the last run, with those adopted, by arm identity; empty before any run."""
        if not self.store.exists(_IDENTITIES):
            return {}
        found: dict[str, dict[str, Any]] = json.loads(self.store.read(_IDENTITIES))
        adopted = read_adopted(self.store)
        return {i: Identity(**fields, adopted=adopted.get(i, ())) for i, fields in found.items()}

    def identify(self, identities: Mapping[str, Identity]) -> None:
        """Note which rows count from now on, inside :meth:`writing` only, for those who read the ledger later."""
        found = {arm_id: identity.to_data() for arm_id, identity in identities.items()}
        self.store.write(_IDENTITIES, json.dumps(found, indent=1).encode())

    def read(
        self,
        kind: Kind,
        columns: Sequence[str] | None = None,
        *,
        where: str = "true",
        without: Sequence[str] = (),
    ) -> pa.Table:
        """Return the ``"trials"`` or ``"epochs"`` table, ordered by key and epoch; without rows, without columns.

        Args:
            kind: Which table.
            columns: The columns to read, if they exist; all by default.
            where: A condition in SQL.
            without: Columns that are not wanted.

        Raises:
            StoreError: if it cannot be read.
        """
        if not delta.exists(self.store):
            return pa.table({})
        table = delta.table(self.store)
        found = delta.query(self.store, table, _sql(table, kind, columns, where, without))
        return found if len(found) else pa.table({})

    def stream(self, kind: Kind) -> pa.RecordBatchReader:
        """Return a whole table batch by batch; a large one would not fit into memory."""
        table = delta.table(self.store)
        return delta.stream(self.store, table, _sql(table, kind))

    def whole(self) -> pa.Table:
        """Return all rows with all columns, trials and epochs, in an order of their own."""
        sql = "select * from ledger order by kind, key, epoch"
        return delta.query(self.store, delta.table(self.store), sql)

    @classmethod
    def restored(cls, store: Store, study: str, rows: pa.Table, identities: Mapping[str, Identity]) -> Ledger:
        """Return a new ledger in ``store`` that holds what :meth:`whole` returned of another one."""
        ledger = cls(store.at(study), study)
        mark = {"study": study, "schema_version": SCHEMA_VERSION, "identity": uuid.uuid4().hex}
        ledger.store.write(MARK, json.dumps(mark).encode())
        ledger.identify(identities)
        delta.write_whole(ledger.store, rows)
        return ledger

    def rows(self, where: str = "true", without: Sequence[str] = ()) -> list[Row]:
        """Return the ``trials`` rows as dictionaries.

        Args:
            where: A condition in SQL.
            without: Columns that are not wanted.
        """
        return to_rows(self.read("trials", where=where, without=without))

    def keys(self) -> list[str]:
        """Return the keys of all ended trials."""
        table = self.read("trials", ["key"])
        return table["key"].to_pylist() if table.num_columns else []


def _sql(
    table: DeltaTable,
    kind: Kind,
    columns: Sequence[str] | None = None,
    where: str = "true",
    without: Sequence[str] = (),
) -> str:
    known = [name for name in _columns(table, kind) if name not in without]
    known = known if columns is None else [name for name in known if name in columns]
    names = ", ".join(f'"{name}"' for name in known)
    return f"select {names} from ledger where kind = '{kind}' and {where} order by {_ORDER[kind]}"  # noqa: S608


def _columns(table: DeltaTable, kind: Kind) -> list[str]:
    names = [field.name for field in table.schema().fields if field.name != "kind"]
    if kind == "trials":
        return [name for name in names if name not in EPOCHS_ONLY]
    wanted = [name for name in names if name in EPOCHS_ONLY or name.startswith("validation.")]
    return ["key", *sorted(wanted, key=lambda name: name != "epoch")]
