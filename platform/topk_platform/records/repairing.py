"""Repairing a study after a power cut or disk failure: a new table gets all sound rows, and the old table is kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.records.files import damaged_artifacts
from topk_platform.records.ledger import IDENTITIES, Ledger, nothing_of
from topk_platform.records.rows import Row, RowViews
from topk_platform.records.run_notes import Unfinished, read_data
from topk_platform.records.storage.checked_json import FOLDER, DamagedError, Mark, read_checked
from topk_platform.records.storage.checksums import newest
from topk_platform.records.storage.delta import Writing
from topk_platform.records.storage.lease import Lease, strays
from topk_platform.records.storage.opened import Opened, check_parquet
from topk_platform.records.storage.sound import sound_rows
from topk_platform.records.storage.store import MARK, QUARANTINE, Store
from topk_platform.records.writer import ledger_schema
from topk_platform.specs import Trial
from topk_platform.specs.checks import check_name

__all__ = ["Repaired", "repair"]

_TABLE = re.compile(rf"{FOLDER}(?:-(\d+))?")
_NOTES = ("standing.json", "plan.json", "environment.json")  # a run makes them again
_DERIVED = "tables"
_ROW = ("kind", "key", "epoch")


@dataclass
class Repaired:
    """What a repair did.

    Args:
        damaged: The files that were damaged, by their paths in the study's folder; each is now in ``damaged``.
        missing: The files that were missing.
        trials: How many further trials were removed because some of their epochs were lost.
        made: The files that were made again.
        kept: Where the old table is now; empty if the table was sound.
        sound: How many trials the new table has; 0 if the table was sound.
    """

    damaged: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    trials: int = 0
    made: list[str] = field(default_factory=list)
    kept: str = ""
    sound: int = 0

    @property
    def is_nothing(self) -> bool:
        """Whether nothing was damaged."""
        return self == Repaired()


def repair(study: str, store: str | Path = "runs") -> Repaired:
    """Read every file of a study's records, and replace a damaged table by a new one with all sound rows.

    Every file is read completely. If a file of the table or of its log is damaged or missing, a new table is made of
    all sound parts that the checksums or the log name. It is written beside the old table and read back. Then the
    study's mark is switched to the new table, and the old table is moved to the folder ``damaged``. A trial with rows
    in a damaged part runs again with the next ``topk run``, with all its epochs. If both the checksums and the log are
    damaged, the new table is empty, and all trials run again. A repair that is cut off loses nothing, and the next one
    finishes it. No other process may write the study meanwhile.

    Args:
        study: The study's name.
        store: Folder or URI of the results.

    Returns:
        What was damaged or missing, and what was done about it.

    Raises:
        StoreError: if the store holds nothing of the study, or another process is writing it.
    """
    check_name("study", study)
    folder = Store.open(store).at(study)
    if not folder.exists(MARK) and not _tables(folder):
        raise nothing_of(store, study)
    with Lease(folder):
        return _Repair(folder, study).run()


class _Repair:
    def __init__(self, store: Store, study: str) -> None:
        self.store, self.study, self.done = store, study, Repaired()

    def run(self) -> Repaired:
        self._quarantine(*strays(self.store))
        mark = self._mark()
        self._finish(mark)
        if self.store.exists(mark.table) or mark.checksums:
            self._table(mark)
        self._identities()
        self._notes()
        ledger = Ledger(self.store, self.study)
        rows = ledger.rows("phase = 'confirm'")
        self._quarantine(*(file.name for file in damaged_artifacts(self.store, rows)))
        tables = (f"{_DERIVED}/{name}" for name in self.store.names(_DERIVED, ".parquet"))
        self._quarantine(*(name for name in tables if not self._is_parquet(name)))
        self.done.sound = len(ledger.keys()) if self.done.kept else 0
        return self.done

    def _quarantine(self, *names: str) -> None:
        for name in names:
            self.store.quarantine(name)
            self.done.damaged.append(name)

    def _is_parquet(self, name: str) -> bool:
        with suppress(pa.ArrowException, OSError, UnicodeDecodeError):
            check_parquet(self.store.read(name))
            return True
        return False

    def _note_made(self, name: str) -> None:
        """Note a file that is made again because it is damaged or missing; a damaged one is kept."""
        if self.store.exists(name):
            self._quarantine(name)
        else:
            self.done.missing.append(name)
        self.done.made.append(name)

    def _mark(self) -> Mark:
        """Return the study's mark; if it is damaged or missing, make it again."""
        try:
            mark = Mark.read(self.store)
            if mark is not None and self._is_own(mark):
                return mark
        except DamagedError:
            pass  # it is made again below
        folder = self._likeliest()
        sums = None
        with suppress(DamagedError):
            sums = newest(self.store, folder)
        summed = self.store.exists(f"{folder}/_checksums")
        made = Mark(self.study, table=folder, checksums=summed, identified=self.store.exists(IDENTITIES))
        if sums and sums.identity:
            made = replace(made, identity=sums.identity)
        self._note_made(MARK)
        made.write(self.store)
        return made

    def _is_own(self, mark: Mark) -> bool:
        """Return whether a mark's table is there; an old backup's mark may name a table that is gone."""
        Ledger(self.store, self.study).check_mark()  # raises for the mark of another study
        tables = _tables(self.store)
        return mark.table in tables or not tables

    def _likeliest(self) -> str:
        """Return the folder of the newest sound table with rows; if there is none, the folder of the oldest table."""
        folders = _tables(self.store)
        for folder in reversed(folders):
            try:
                if Opened.checked(self.store, folder, newest(self.store, folder)).parts:
                    return folder
            except StoreError:
                continue
        return folders[0] if folders else FOLDER

    def _finish(self, mark: Mark) -> None:
        """Finish an earlier repair that was cut off: move aside the table that it had begun, or the old table."""
        for folder in _tables(self.store):
            if folder != mark.table:
                self._move(folder)
                if _number(folder) < _number(mark.table):
                    self.done.kept = f"{QUARANTINE}/{folder}"

    def _move(self, folder: str) -> None:
        for name in self.store.files(folder):
            self.store.move(name, f"{QUARANTINE}/{name}")
        self.store.delete_folder(folder)  # folders without files

    def _table(self, mark: Mark) -> None:
        """Make a new table if the study's table is not sound."""
        sound = sound_rows(self.store, mark.table, summed=mark.checksums)
        if sound.is_whole:
            return
        self.done.damaged += sound.damaged
        self.done.missing += sound.missing
        self.done.trials += sound.lost
        mark.noted(self.store, table=self._written(sound.rows), checksums=True)
        self._move(mark.table)
        self.done.kept = f"{QUARANTINE}/{mark.table}"

    def _written(self, rows: pa.Table) -> str:
        """Write a new table beside the old one, read it back, and return its folder."""
        taken = [*_tables(self.store), *_tables(self.store.at(QUARANTINE)), FOLDER]
        folder = f"{FOLDER}-{max(map(_number, taken)) + 1}"
        schema = rows.schema if len(rows) else ledger_schema(())
        table = Writing(self.store, schema, folder)
        if len(rows):
            table.append(rows)
        opened = Opened.of(self.store, folder)
        opened.check_parts(again=True)
        back = opened.query(f"select {', '.join(_ROW)} from ledger")  # noqa: S608 - fixed names
        if _sorted(back) != _sorted(rows):
            raise StoreError(
                f"store {self.store.uri!r}: the new table in {folder} holds other rows than were written: "
                f"{len(rows)} were written, {len(back)} were read back; the old table is unchanged"
            )
        return folder

    def _identities(self) -> None:
        """If the note of which rows count is damaged, make it again from each arm's last trial."""
        ledger = Ledger(self.store, self.study)
        try:
            ledger.identities()
        except DamagedError:
            self._note_made(IDENTITIES)
            ledger.identify(_last(ledger))

    def _notes(self) -> None:
        readers: list[Callable[[], object]] = [
            partial(Unfinished.read, self.store),
            partial(read_data, self.store),
        ]
        readers += [partial(read_checked, self.store, name, dict) for name in _NOTES]
        for read in readers:
            try:
                read()
            except DamagedError as error:
                self._quarantine(error.name)


def _tables(store: Store) -> list[str]:
    """Return the folders of tables, the oldest first."""
    return sorted((name for name in store.folders() if _TABLE.fullmatch(name)), key=_number)


def _number(folder: str) -> int:
    match = _TABLE.fullmatch(folder)
    return int(match[1] or 1) if match else 0


def _sorted(rows: pa.Table) -> list[tuple[str, str, int]]:
    if not len(rows):
        return []
    columns = (rows[name].to_pylist() for name in _ROW)
    return sorted((kind, key, epoch or 0) for kind, key, epoch in zip(*columns, strict=True))


def _last(ledger: Ledger) -> dict[str, Identity]:
    """Return the identity of each arm's last trial."""
    rows = RowViews(
        ledger.read("trials", ["arm_id", "code_version", "dataset_fingerprint", "config", "ended"])
    )
    last: dict[str, Row] = {}
    for row, arm_id, ended in zip(rows, rows.column("arm_id"), rows.column("ended"), strict=True):
        if arm_id not in last or last[arm_id]["ended"] <= ended:
            last[arm_id] = row
    trials = {arm_id: Trial.from_json(row["config"]) for arm_id, row in last.items()}
    return {
        arm_id: Identity(trial.code_version, trial.dataset_fingerprint, trial.environment)
        for arm_id, trial in trials.items()
    }
