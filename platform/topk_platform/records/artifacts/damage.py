"""Files of confirmations that are missing or damaged. They are set aside, and their confirmations are trained again."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from topk_platform.records.artifacts.files import KINDS, Kind, artifact_name
from topk_platform.records.artifacts.guesses import read_guesses
from topk_platform.records.artifacts.networks import read_model
from topk_platform.records.artifacts.ranks import read_ranks
from topk_platform.records.storage.aside import move_aside
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.storage.store import Store
from topk_platform.records.table.rows import Row

__all__ = ["NEEDED", "Unsound", "damaged_artifacts", "missing_artifacts", "set_aside"]

NEEDED: tuple[Kind, ...] = ("ranks", "guesses")
"""The kinds of files without which a confirmation is trained again by the next run."""

_AT_ONCE = 16  # small files; an object store answers in some 30 ms, however many ask
_READERS: Mapping[Kind, Callable[[Store, Row], object]] = {
    "ranks": read_ranks,
    "guesses": read_guesses,
    "network": read_model,
}


@dataclass(frozen=True)
class Unsound:
    """A file of a confirmation that is gone or damaged.

    Args:
        key: The confirmation's.
        kind: Which file.
    """

    key: str
    kind: Kind

    @property
    def name(self) -> str:
        """The file's name inside the study's folder."""
        return artifact_name(self.kind, self.key)


def missing_artifacts(store: Store, rows: Iterable[Row], kinds: Sequence[Kind] = KINDS) -> list[Unsound]:
    """Return the files that completed confirmations lack; no file is read.

    Args:
        store: The study's folder.
        rows: Rows of the ledger; those of other trials are ignored.
        kinds: The kinds of files to look for.

    Raises:
        StoreError: if the store cannot be read.
    """
    keys = [row["key"] for row in _completed(rows)]
    there = _there(store, kinds) if keys else {}
    return [
        Unsound(key, kind) for kind in kinds for key in keys if artifact_name(kind, key) not in there[kind]
    ]


def damaged_artifacts(store: Store, rows: Iterable[Row], kinds: Sequence[Kind] = KINDS) -> list[Unsound]:
    """Return the files of completed confirmations that are there and damaged; every file is read.

    A file is damaged if its SHA-256 is not the recorded one. A file without a recorded one, which an earlier program
    wrote, is damaged if it cannot be read as what it should be.

    Args:
        store: The study's folder.
        rows: Rows of the ledger; those of other trials are ignored.
        kinds: The kinds of files to read.

    Raises:
        StoreError: if the store cannot be read.
    """
    rows = _completed(rows)
    there = _there(store, kinds) if rows else {}
    present = [
        (kind, row) for kind in kinds for row in rows if artifact_name(kind, row["key"]) in there[kind]
    ]
    small = [pair for pair in present if pair[0] != "network"]
    large = [
        pair for pair in present if pair[0] == "network"
    ]  # one at a time, because they may fill the memory
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        damaged = [*pool.map(lambda pair: _is_damaged(store, *pair), small)]
    damaged += [_is_damaged(store, *pair) for pair in large]
    pairs = zip((*small, *large), damaged, strict=True)
    return [Unsound(row["key"], kind) for (kind, row), is_damaged in pairs if is_damaged]


def set_aside(store: Store, files: Iterable[Unsound]) -> None:
    """Move damaged files into the folder ``damaged``, so that they are missing; in a study that this process writes.

    Raises:
        StoreError: if the store cannot be written.
    """
    for file in files:
        move_aside(store, file.name)


def _completed(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["phase"] == "confirm" and row["status"] == "completed"]


def _there(store: Store, kinds: Sequence[Kind]) -> dict[Kind, set[str]]:
    folders = {kind: posixpath.dirname(artifact_name(kind, "")) for kind in kinds}
    return {kind: {f"{folder}/{name}" for name in store.names(folder)} for kind, folder in folders.items()}


def _is_damaged(store: Store, kind: Kind, row: Row) -> bool:
    try:
        _READERS[kind](store, row)
    except DamagedError:
        return True
    return False
