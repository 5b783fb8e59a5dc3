"""The ledger: the only source of a study's results, a table in Delta Lake that any number of processes may read.

``<store>/<study>/ledger`` holds a row per (trial, seed) and a row per trial and epoch. The column ``kind`` tells them
apart. One commit holds a trial with all its epochs, or nothing of the trial. A :class:`Lease` decides who writes. The
table also refuses commits of a driver that another driver has replaced. Other tools read the two plain Parquet files
that :func:`~topk_platform.records.snapshot.write_snapshot` makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable

from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.records.rows import Row, RowViews
from topk_platform.records.storage.checked_json import (
    FOLDER,
    SCHEMA_VERSION,
    Mark,
    damaged,
    read_checked,
    with_checksum,
)
from topk_platform.records.storage.checksums import LOG
from topk_platform.records.storage.delta import Writing
from topk_platform.records.storage.lease import Lease
from topk_platform.records.storage.opened import Opened, exists
from topk_platform.records.storage.store import MARK, Store
from topk_platform.records.writer import EPOCHS_ONLY, Writer, ledger_schema
from topk_platform.specs import Study
from topk_platform.specs.checks import check_name, first_few
from topk_platform.specs.smoke import SMOKE

__all__ = ["IDENTITIES", "Ledger", "instead_of", "is_study", "nothing_of"]

Kind = Literal["trials", "epochs"]

IDENTITIES = "identities.json"
"""The file with the identities of the rows that count."""

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
        """Return the ledger of ``study`` in ``store``. It need not exist yet, and nothing is written.

        Raises:
            UserError: if ``study`` is not a valid name.
            StoreError: if the folder holds another study's records, another schema, or something else, or ``store`` is
                a study's own folder.
        """
        check_name("study", study)
        ledger = cls(store.at(study), study)
        ledger.check_mark()
        if not ledger.exists and store.exists(MARK):
            raise StoreError(
                f"store {store.uri!r} is the folder of one study: give --store the folder that holds it"
            )
        return ledger

    def check_mark(self) -> None:
        """Raise ``StoreError`` if the folder holds another study's records, another schema, or something else."""
        mark = Mark.read(self.store)
        if mark is None and self.is_unmarked:
            raise damaged(self.store, MARK, "missing")
        if mark is None and (self.store.names() or self.store.folders()):
            raise StoreError(
                f"store {self.store.uri!r} is not empty and holds no ledger: choose another --store"
            )
        if mark is None:
            return
        if mark.study != self.study:
            raise StoreError(
                f"store {self.store.uri!r} holds the records of study {mark.study!r}, not of {self.study!r}"
            )
        if mark.schema_version != SCHEMA_VERSION:
            raise StoreError(
                f"store {self.store.uri!r} has schema version {mark.schema_version}, but this program reads "
                f"{SCHEMA_VERSION}: another version of topk-studies has written it, so use that version, or choose "
                "another --store"
            )

    @property
    def is_unmarked(self) -> bool:
        """Whether the folder holds a table but not the file that marks it."""
        folders = (name for name in self.store.folders() if name.startswith(FOLDER))
        return not self.exists and any(self.store.exists(f"{folder}/{LOG}") for folder in folders)

    @property
    def exists(self) -> bool:
        """Whether the study has records here."""
        return self.store.exists(MARK)

    @property
    def version(self) -> int:
        """The number of the table's newest commit, which changes when something is written; -1 without a table."""
        opened = self.opened()
        return opened.table.version() if opened else -1

    def opened(self) -> Opened | None:
        """Return the table as it is now, for several reads of one version; None without a table."""
        return Opened.of(self.store) if exists(self.store) else None

    @property
    def identity(self) -> str:
        """An identity that no other ledger has, not even one of a study with the same name."""
        mark = Mark.read(self.store)
        return mark.identity if mark else ""

    @contextmanager
    def writing(self, study: Study) -> Iterator[Writer]:
        """Hold the ledger for writing. When the block ends, every record that was handed over has been written.

        Args:
            study: The study. Its metrics give the columns. Further columns of the ledger stay.

        Raises:
            StoreError: if it cannot be written, or another process is writing it.
        """
        with Lease(self.store) as lease:
            mark = Mark.read(self.store)
            if mark is None:
                mark = Mark(self.study)
                mark.write(self.store)
            table = Writing(self.store, ledger_schema(study.metrics))
            mark.noted(self.store, checksums=True)
            with Writer(table, lease) as writer:
                yield writer

    def identities(self) -> dict[str, Identity]:
        """Return the identities of the rows that counted in the last run, by arm ID; empty before any run.

        Raises:
            StoreError: if their file is damaged or missing.
        """
        noted = read_checked(
            self.store, IDENTITIES, lambda note: {i: Identity(**fields) for i, fields in note.items()}
        )
        if noted is None and (mark := Mark.read(self.store)) and mark.identified:
            raise damaged(self.store, IDENTITIES, "missing")
        return noted or {}

    def identify(self, identities: Mapping[str, Identity]) -> None:
        """Note the identities of the rows that count from now on. This process must hold the study for writing."""
        note = {arm_id: asdict(identity) for arm_id, identity in identities.items()}
        self.store.write(IDENTITIES, with_checksum(note))
        if mark := Mark.read(self.store):
            mark.noted(self.store, identified=True)

    def read(
        self,
        kind: Kind,
        columns: Sequence[str] | None = None,
        *,
        where: str = "true",
        without: Sequence[str] = (),
        opened: Opened | None = None,
    ) -> pa.Table:
        """Return the ``"trials"`` or ``"epochs"`` table, ordered by key and epoch; an empty table has no columns.

        Args:
            kind: Which table.
            columns: The columns to read; by default all. Columns that the table does not have are ignored.
            where: A condition in SQL.
            without: Columns to leave out.
            opened: The table as it was opened before; by default it is opened now.

        Raises:
            StoreError: if it cannot be read.
        """
        opened = opened or self.opened()
        if opened is None:
            return pa.table({})
        rows = opened.query(_sql(opened.table, kind, columns, where, without), [kind])
        return rows if len(rows) else pa.table({})

    @contextmanager
    def stream(self, kind: Kind) -> Iterator[pa.RecordBatchReader]:
        """Give the block the rows of one kind batch by batch, because a large table may not fit into memory."""
        opened = Opened.of(self.store)
        with opened.reading([kind]):
            yield opened.stream(_sql(opened.table, kind), [kind])

    def rows(self, where: str = "true", without: Sequence[str] = ()) -> list[Row]:
        """Return the ``trials`` rows.

        Args:
            where: A condition in SQL.
            without: Columns to leave out.
        """
        return [*RowViews(self.read("trials", where=where, without=without))]

    def arms(self) -> list[Row]:
        """Return a row per recorded arm: ``arm_id``, the number of ``trials``, the latest ``ended``, one ``config``."""
        if not exists(self.store):
            return []
        sql = """select arm_id, count(*) as trials, max(ended) as ended, max(config) as config
                 from ledger where kind = 'trials' group by arm_id order by arm_id"""
        return [*RowViews(Opened.of(self.store).query(sql, ["trials"]))]

    def keys(self) -> list[str]:
        """Return the keys of all ended trials."""
        table = self.read("trials", ["key"])
        return table["key"].to_pylist() if table.num_columns else []


def is_study(store: Store, folder: str) -> bool:
    """Return whether a folder of a store holds a study, sound or damaged."""
    ledger = Ledger(store.at(folder), folder)
    return ledger.exists or ledger.is_unmarked


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
    shown = [name for name in names if name in EPOCHS_ONLY or name.startswith("validation.")]
    return ["key", *sorted(shown, key=lambda name: name != "epoch")]


def nothing_of(store: str | Path, study: str) -> StoreError:
    """Return the error of a store without results of a study, to be raised by the caller.

    Args:
        store: Folder or URI of the results.
        study: The study's name.
    """
    return StoreError(f"store {str(store)!r} holds nothing of study {study!r}{instead_of(store, study)}")


def instead_of(store: str | Path, study: str) -> str:
    """Return what a store holds instead of a study, to end the line of an error; empty if it is empty.

    Args:
        store: Folder or URI of the results.
        study: The name of the study that is missing.
    """
    root = Store.open(store)
    if root.local is not None and not root.local.exists():
        return ": there is no such folder"
    held = [name for name in root.folders() if root.exists(f"{name}/{MARK}")]
    small = f"{study}{SMOKE}"
    if small in held:
        return f", but of its small version {small!r}: add --smoke to see it"
    return f": it holds {first_few(held)}" if held else ""
