"""The checksums of a study's table: for each part, for each log file, and for the content that the log describes.

``<table>/_checksums/VERSION.json`` is written after each commit, and the file before it is deleted. If a process is
killed in between, the checksums are older than the log by one operation, and never newer. So a log that ends before its
checksums has lost commits.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from topk_platform.records.storage.checked_json import (
    DamagedError,
    Mark,
    damaged,
    read_checked,
    repair_of,
    with_checksum,
)
from topk_platform.records.storage.store import Store

__all__ = [
    "AFTER",
    "CHECKPOINT_INTERVAL",
    "LOG",
    "Checksums",
    "damaged_logs",
    "digest_files",
    "follows",
    "live_parts",
    "log_name",
    "missing",
    "newest",
    "remedy",
    "unsound",
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
_AT_ONCE = 8  # files that are hashed in parallel
_FEW = 4  # for so few files on a disk, threads would take longer


@dataclass(frozen=True)
class Checksums:
    """The checksums of one version of a study's table.

    Args:
        version: The version.
        identity: The ledger's identity, as in its mark.
        view: The SHA-256 of what the log describes: columns, settings, and the parts with their statistics.
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
        """Return the checksums of a table. Only files that were written since ``before`` are read."""
        files, actions = store.at(folder), _actions(table)
        live = _sizes(actions)
        known, mark = (before.parts if before else {}), Mark.read(store)
        sums = digest_files(files, sorted(live.keys() - known.keys()))
        parts = {path: known.get(path) or (size, sums[path]) for path, size in live.items()}
        identity, version = (mark.identity if mark else ""), table.version()
        return cls(version, identity, _view(table, actions), parts, _log_sums(files, version, before))

    def write(self, store: Store, folder: str, before: Checksums | None = None) -> None:
        """Write these checksums beside a table, and delete earlier ones.

        Args:
            store: The study's folder.
            folder: The table's folder in it.
            before: The only earlier checksums. By default, the folder is listed to find them.
        """
        name = f"{self.version:020d}.json"
        store.create(f"{folder}/{_FOLDER}/{name}", with_checksum(vars(self)))
        known = [f"{before.version:020d}.json"] if before else _names(store, folder)
        store.delete(*(f"{folder}/{_FOLDER}/{other}" for other in known if other < name))


def newest(store: Store, folder: str) -> Checksums | None:
    """Return the newest checksums of a table; None if there are none, as before a table's first commit.

    Raises:
        StoreError: if they are damaged, or cannot be read.
    """
    while names := _names(store, folder):
        name, remedy = f"{folder}/{_FOLDER}/{names[-1]}", f"{repair_of(store)} makes it again"
        sums = read_checked(store, name, remedy, _read)
        if sums is None:  # replaced by newer ones meanwhile
            continue
        if f"{sums.version:020d}.json" != names[-1]:
            raise damaged(store, name, remedy)
        return sums
    return None


def _names(store: Store, folder: str) -> list[str]:
    return [name for name in store.names(f"{folder}/{_FOLDER}") if _NAME.fullmatch(name)]


def _read(content: dict[str, Any]) -> Checksums:
    parts = {str(path): (int(size), str(digest)) for path, (size, digest) in content["parts"].items()}
    version, identity = int(content["version"]), str(content["identity"])
    return Checksums(version, identity, str(content["view"]), parts, dict(content["log"]))


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
    """Return the SHA-256 of what a table's log describes. It does not depend on how the log is split into files."""
    return _view(table, _actions(table))


def _view(table: DeltaTable, actions: pa.Table) -> str:
    actions, metadata = actions.sort_by("path"), table.metadata()
    digest = hashlib.sha256(repr((metadata.id, metadata.partition_columns)).encode())
    digest.update(repr(sorted(metadata.configuration.items())).encode())
    digest.update(json.dumps(json.loads(table.schema().to_json()), sort_keys=True).encode())
    for name in sorted(actions.column_names):
        column = actions[name]
        column = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        digest.update(repr((name, column.to_pylist())).encode())
    return digest.hexdigest()


def digest_files(store: Store, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of files, by name; several are read in parallel.

    Raises:
        FileNotFoundError: if one is missing.
        StoreError: if one cannot be read.
    """
    paths = list(names)
    if len(paths) <= _FEW and store.local is not None:
        return {name: store.digest(name) for name in paths}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(paths, pool.map(store.digest, paths), strict=True))


def log_name(version: int) -> str:
    """Return the name of a version's log file, in the table's folder."""
    return f"{LOG}/{version:020d}.json"


def _log_sums(files: Store, version: int, before: Checksums | None) -> dict[str, str]:
    """Return the checksums of the log files that a version is read from: the last checkpoint and later files."""
    if before is None:
        new = [f"{LOG}/{name}" for name in files.names(LOG)]
    else:
        new = [name for made in range(before.version + 1, version + 1) for name in _made(files, made)]
    sums = {**(before.log if before else {}), **digest_files(files, new)}
    first = max((version_of(name) for name in sums if name.endswith(_CHECKPOINT)), default=0)
    return {name: sums[name] for name in sorted(sums) if not 0 <= version_of(name) < first}


def _made(files: Store, version: int) -> list[str]:
    """Return the log files that a commit has written: its own, and sometimes a checkpoint."""
    checkpoint = f"{LOG}/{version:020d}{_CHECKPOINT}"
    if (version + 1) % CHECKPOINT_INTERVAL or not files.exists(checkpoint):
        return [log_name(version)]
    return [log_name(version), checkpoint, f"{LOG}/_last_checkpoint"]


def version_of(name: str) -> int:
    """Return the version of a log file, -1 for another file."""
    match = _VERSION.fullmatch(posixpath.basename(name))
    return int(match[1]) if match else -1


AFTER = "topk.after"
"""The key in a commit's metadata for the version of the checksums that were the newest at that time."""


def unsound(store: Store, name: str) -> DamagedError:
    """Return the error for a damaged or missing part of a table. After a repair, its trials run again."""
    again = f"{repair_of(store)} sets it aside, so that its trials run again"
    return damaged(store, name, again, "damaged or missing")


def missing(store: Store, name: str) -> DamagedError:
    """Return the error for a missing file of a table."""
    return damaged(store, name, remedy(store), "missing")


def remedy(store: Store) -> str:
    """Return the remedy for a damaged log, for messages."""
    return f"{repair_of(store)} makes a sound table of what can be read"


def damaged_logs(store: Store, folder: str, sums: Checksums | None) -> Iterator[DamagedError]:
    """Yield an error for each damaged or missing file of a log.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
        sums: The table's checksums, if it has any; without them, every file that can be read counts as sound.
    """
    names = [f"{LOG}/{name}" for name in store.names(f"{folder}/{LOG}", ".json")]
    known = sums.log if sums else {}
    for name in sorted({*names, *known}):
        if name not in names and name.endswith(".json"):
            yield missing(store, f"{folder}/{name}")
        elif not _is_sound(store, f"{folder}/{name}", known.get(name)):
            yield damaged(store, f"{folder}/{name}", remedy(store))
    versions = sorted(version for name in names if (version := version_of(name)) >= 0)
    low, high = next((pair for pair in pairwise(versions) if pair[1] != pair[0] + 1), (0, 0))
    if sums and low >= sums.version and high:  # a foreign file: a killed process leaves at most one commit
        yield damaged(store, f"{folder}/{log_name(high)}", remedy(store))
    elif high:
        yield missing(store, f"{folder}/{log_name(low + 1)}")


def _is_sound(store: Store, name: str, digest: str | None) -> bool:
    try:
        return bool(_log_lines(store.read(name))) if digest is None else store.digest(name) == digest
    except FileNotFoundError:
        return False


def _log_lines(content: bytes) -> list[dict[str, Any]]:
    """Return the actions of a log file; none if it is damaged, because every commit has actions."""
    try:
        actions = [json.loads(line) for line in content.splitlines()]
    except (ValueError, RecursionError):
        return []
    return actions if all(isinstance(action, dict) for action in actions) else []


def follows(content: bytes, version: int) -> bool:
    """Return whether a commit was made after a version.

    The answer is False for a foreign file, and for a copy of another commit under this number.
    """
    infos = [action["commitInfo"] for action in _log_lines(content) if "commitInfo" in action]
    after = infos[0].get(AFTER) if infos and isinstance(infos[0], dict) else None
    return isinstance(after, str) and after.isdecimal() and int(after) >= version
