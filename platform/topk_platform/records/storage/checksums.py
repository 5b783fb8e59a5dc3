"""The checksums of a study's table: of each part, and of each log file.

``<table>/_checksums/VERSION.json`` is written after each commit, and the file before it is deleted. If a process is
killed in between, the checksums are older than the log by one operation, and never newer. So a log that ends before its
checksums has lost commits.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from topk_platform.records.storage.checked_json import (
    DamagedError,
    Mark,
    damaged,
    read_checked,
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
    "live_parts",
    "log_name",
    "newest",
    "version_of",
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
        parts: The SHA-256 of each part, by its path in the table's folder.
        log: The SHA-256 of each log file that this version is read from, by name.
    """

    version: int
    identity: str
    parts: Mapping[str, str]
    log: Mapping[str, str]

    @classmethod
    def of(cls, store: Store, folder: str, table: DeltaTable, before: Checksums | None) -> Checksums:
        """Return the checksums of a table. Only files that were written since ``before`` are read."""
        files, live, mark = store.at(folder), live_parts(table), Mark.read(store)
        known = before.parts if before else {}
        sums = {**known, **digest_files(files, sorted(live - known.keys()))}
        parts = {path: sums[path] for path in sorted(live)}
        version = table.version()
        return cls(version, mark.identity if mark else "", parts, _log_sums(files, version, before))

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
        name = f"{folder}/{_FOLDER}/{names[-1]}"
        sums = read_checked(store, name, _read)
        if sums is None:  # replaced by newer ones meanwhile
            continue
        if f"{sums.version:020d}.json" != names[-1]:
            raise damaged(store, name)
        return sums
    return None


def _names(store: Store, folder: str) -> list[str]:
    return [name for name in store.names(f"{folder}/{_FOLDER}") if _NAME.fullmatch(name)]


def _read(content: dict[str, Any]) -> Checksums:
    # The checksums of earlier programs have a size beside each part's digest.
    parts = {path: each if isinstance(each, str) else each[1] for path, each in content["parts"].items()}
    return Checksums(int(content["version"]), str(content["identity"]), parts, dict(content["log"]))


def live_parts(table: DeltaTable) -> set[str]:
    """Return the paths of a table's parts in its folder."""
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions())  # pa.table would import pandas
    return {unquote(path) for path in actions.read_all()["path"].to_pylist()}


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


def damaged_logs(store: Store, folder: str, sums: Checksums | None) -> Iterator[DamagedError]:
    """Yield an error for each file of a log that is damaged, missing or foreign.

    Files that the checksums do not know are later commits, each made after the version of the checksums: a killed
    process leaves one. Without checksums, every commit that can be read counts as sound.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
        sums: The table's checksums, if it has any.
    """
    files, version = store.at(folder), sums.version if sums else -1
    present = {f"{LOG}/{name}" for name in files.names(LOG)}
    known = sums.log if sums else {}
    made = [version_of(name) for name in present if name.endswith(_CHECKPOINT)]
    last = max((number for number in made if log_name(number) in present), default=-1)
    # A checkpoint that is newer than the checksums replaces their files, and older files may be deleted.
    if last > version:
        known, version = {}, last - 1 if sums is None else version
    digests = digest_files(files, sorted(known.keys() & present))
    for name in sorted(known):
        if digests.get(name) != known[name]:
            yield damaged(store, f"{folder}/{name}", "damaged" if name in present else "missing")
    for name in sorted(name for name in present if name.endswith(".json") and version_of(name) > version):
        version += 1
        if name != log_name(version) and sums is None:
            yield damaged(store, f"{folder}/{log_name(version)}", "missing")
        elif name != log_name(version) or not _is_commit(files.read(name), sums):
            yield damaged(store, f"{folder}/{name}")
        version = version_of(name)


def _is_commit(content: bytes, sums: Checksums | None) -> bool:
    """Return whether a log file can be read and, if there are checksums, was written after their version.

    The answer is False for a foreign file, and for a copy of another commit under this number.
    """
    try:
        actions = [json.loads(line) for line in content.splitlines()]
        infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
        return bool(actions) if sums is None else int(infos[0][AFTER]) >= sums.version
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
