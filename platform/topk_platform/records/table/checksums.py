"""The checksums of a study's table: of each of its parts and log files, and of the table that the log leads to.

``<table>/_checksums/VERSION.json`` is written after each commit, and the one before is deleted. A process that is
killed in between leaves checksums that lag behind the log by what its last operation committed; they never lead. So a
log that ends before its checksums has lost commits.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from topk_platform.records.storage.checked_json import damaged, read_checked, written
from topk_platform.records.storage.store import Store
from topk_platform.records.table.mark import Mark, repair_of

__all__ = [
    "CHECKPOINT_INTERVAL",
    "LOG",
    "Checksums",
    "digest_files",
    "live_parts",
    "log_name",
    "newest",
    "version_of",
    "view_of",
]

LOG = "_delta_log"
_FOLDER = "_checksums"
_NAME = re.compile(r"\d{20}\.json")
_VERSION = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")
_CHECKPOINT = ".checkpoint.parquet"
CHECKPOINT_INTERVAL = 100
"""Commits between two checkpoints of the log."""
_AT_ONCE = 8  # files that are read and hashed at a time
_FEW = 4  # files on a disk that take less time than threads do


@dataclass(frozen=True)
class Checksums:
    """The checksums of one version of a study's table.

    Args:
        version: The version.
        identity: The ledger's identity, as its mark has it.
        view: The SHA-256 of what the log says: columns, settings, and the parts with their statistics.
        parts: The size and the SHA-256 of each part, by its path in the table's folder.
        log: The SHA-256 of each log file that this version is read from, by name.
    """

    version: int
    identity: str
    view: str
    parts: Mapping[str, tuple[int, str]]
    log: Mapping[str, str]

    @classmethod
    def of(cls, store: Store, folder: str, table: DeltaTable, before: Checksums | None) -> Checksums:
        """Return the checksums of a table; only what has been written since ``before`` is read.

        Args:
            store: The study's folder.
            folder: The table's folder in it.
            table: The table.
            before: Its checksums after an earlier commit, if there are any.
        """
        place, actions = store.at(folder), _actions(table)
        live = _sizes(actions)
        known, mark = (before.parts if before else {}), Mark.read(store)
        sums = digest_files(place, sorted(live.keys() - known.keys()))
        parts = {path: known.get(path) or (size, sums[path]) for path, size in live.items()}
        identity, version = (mark.identity if mark else ""), table.version()
        return cls(version, identity, _view(table, actions), parts, _log_sums(place, version, before))

    def write(self, store: Store, folder: str, before: Checksums | None = None) -> None:
        """Write them beside a table, and delete earlier ones.

        Args:
            store: The study's folder.
            folder: The table's folder in it.
            before: The only earlier ones; by default they are looked for.
        """
        name = f"{self.version:020d}.json"
        store.create(f"{folder}/{_FOLDER}/{name}", written(vars(self)))
        known = [f"{before.version:020d}.json"] if before else _names(store, folder)
        store.delete(*(f"{folder}/{_FOLDER}/{other}" for other in known if other < name))


def newest(store: Store, folder: str) -> Checksums | None:
    """Return the newest checksums of a table; None if there are none, as in a store of an earlier version.

    Args:
        store: The study's folder.
        folder: The table's folder in it.

    Raises:
        StoreError: if they are damaged, or cannot be read.
    """
    while names := _names(store, folder):
        name, remedy = f"{folder}/{_FOLDER}/{names[-1]}", f"{repair_of(store)} makes it anew"
        found = read_checked(store, name, remedy)
        if found is None:  # replaced by newer ones meanwhile
            continue
        try:
            sums = _read(found)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(store, name, remedy) from error
        if f"{sums.version:020d}.json" != names[-1]:
            raise damaged(store, name, remedy)
        return sums
    return None


def _names(store: Store, folder: str) -> list[str]:
    return [name for name in store.names(f"{folder}/{_FOLDER}") if _NAME.fullmatch(name)]


def _read(found: dict[str, Any]) -> Checksums:
    parts = {str(path): (int(size), str(digest)) for path, (size, digest) in found["parts"].items()}
    version, identity = int(found["version"]), str(found["identity"])
    return Checksums(version, identity, str(found["view"]), parts, dict(found["log"]))


def live_parts(table: DeltaTable) -> dict[str, int]:
    """Return the size in bytes of each part of a table, by its path in the table's folder."""
    return _sizes(_actions(table))


def _actions(table: DeltaTable) -> pa.Table:
    # Not by pa.table, which imports pandas.
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()


def _sizes(actions: pa.Table) -> dict[str, int]:
    paths, sizes = (actions[name].to_pylist() for name in ("path", "size_bytes"))
    return {unquote(path): size for path, size in zip(paths, sizes, strict=True)}


def view_of(table: DeltaTable) -> str:
    """Return the SHA-256 of what a table's log says, whichever of its files say it."""
    return _view(table, _actions(table))


def _view(table: DeltaTable, actions: pa.Table) -> str:
    actions, metadata = actions.sort_by("path"), table.metadata()
    said = hashlib.sha256(repr((metadata.id, metadata.partition_columns)).encode())
    said.update(repr(sorted(metadata.configuration.items())).encode())
    said.update(json.dumps(json.loads(table.schema().to_json()), sort_keys=True).encode())
    for name in sorted(actions.column_names):
        said.update(repr((name, _plain(actions[name]).to_pylist())).encode())
    return said.hexdigest()


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def digest_files(store: Store, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of files, by name; several are read at a time.

    Raises:
        FileNotFoundError: if one is not there.
        StoreError: if one cannot be read.
    """
    wanted = list(names)
    if len(wanted) <= _FEW and store.local is not None:
        return {name: store.digest(name) for name in wanted}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(wanted, pool.map(store.digest, wanted), strict=True))


def log_name(version: int) -> str:
    """Return the name of a version's log file, in the table's folder."""
    return f"{LOG}/{version:020d}.json"


def _log_sums(place: Store, version: int, before: Checksums | None) -> dict[str, str]:
    """Return the checksums of the log files that a version is read from: those since the last checkpoint, and that."""
    if before is None:
        new = [f"{LOG}/{name}" for name in place.names(LOG)]
    else:
        new = [name for made in range(before.version + 1, version + 1) for name in _made(place, made)]
    found = {**(before.log if before else {}), **digest_files(place, new)}
    first = max((version_of(name) for name in found if name.endswith(_CHECKPOINT)), default=0)
    return {name: found[name] for name in sorted(found) if not 0 <= version_of(name) < first}


def _made(place: Store, version: int) -> list[str]:
    """Return the log files that a commit has made: its own, and now and then a checkpoint."""
    checkpoint = f"{LOG}/{version:020d}{_CHECKPOINT}"
    if (version + 1) % CHECKPOINT_INTERVAL or not place.exists(checkpoint):
        return [log_name(version)]
    return [log_name(version), checkpoint, f"{LOG}/_last_checkpoint"]


def version_of(name: str) -> int:
    """Return the version that a log file is of, -1 for another file."""
    found = _VERSION.fullmatch(posixpath.basename(name))
    return int(found[1]) if found else -1
