"""Files of confirmations that are missing or damaged. They are set aside, and their confirmations are trained again."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import compress

from topk_platform.records.artifacts.files import KINDS, Kind, artifact_name, read_artifact
from topk_platform.records.storage.aside import move_aside
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.storage.store import Store
from topk_platform.records.table.rows import Row

__all__ = ["NEEDED", "Unsound", "damaged_artifacts", "missing_artifacts", "set_aside"]

NEEDED: tuple[Kind, ...] = ("ranks", "guesses")
"""The kinds of files without which a confirmation is trained again by the next run."""

_AT_ONCE = 16  # small files; an object store answers in about 30 ms, for any number of requests at a time


@dataclass(frozen=True)
class Unsound:
    """A file of a confirmation that is missing or damaged.

    Args:
        key: The confirmation's key.
        kind: Which file.
    """

    key: str
    kind: Kind

    @property
    def name(self) -> str:
        """The file's name inside the study's folder."""
        return artifact_name(self.kind, self.key)


def missing_artifacts(store: Store, rows: Iterable[Row], kinds: Sequence[Kind] = KINDS) -> list[Unsound]:
    """Return the files that completed confirmations lack, without reading any file.

    Args:
        store: The study's folder.
        rows: Rows of the ledger; those of other trials are ignored.
        kinds: The kinds of files to look for.

    Raises:
        StoreError: if the store cannot be read.
    """
    keys = [row["key"] for row in _completed(rows)]
    names = _present(store, kinds) if keys else {}
    return [
        Unsound(key, kind) for kind in kinds for key in keys if artifact_name(kind, key) not in names[kind]
    ]


def damaged_artifacts(store: Store, rows: Iterable[Row], kinds: Sequence[Kind] = KINDS) -> list[Unsound]:
    """Return the files of completed confirmations that exist and are damaged. Every file is read.

    A file is damaged if its SHA-256 is not the recorded one.

    Args:
        store: The study's folder.
        rows: Rows of the ledger; those of other trials are ignored.
        kinds: The kinds of files to read.

    Raises:
        StoreError: if the store cannot be read.
    """
    rows = _completed(rows)
    names = _present(store, kinds) if rows else {}
    damaged = []
    for kind in kinds:
        present = [row for row in rows if artifact_name(kind, row["key"]) in names[kind]]
        # Networks are read one at a time, because several may fill the memory.
        with ThreadPoolExecutor(1 if kind == "network" else _AT_ONCE) as pool:
            unsound = pool.map(partial(_is_damaged, store, kind), present)
            damaged += [Unsound(row["key"], kind) for row in compress(present, unsound)]
    return damaged


def set_aside(store: Store, files: Iterable[Unsound]) -> None:
    """Move damaged files into the folder ``damaged``, so that they count as missing.

    This process must hold the study for writing.

    Args:
        store: The study's folder.
        files: The damaged files.

    Raises:
        StoreError: if the store cannot be written.
    """
    for file in files:
        move_aside(store, file.name)


def _completed(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["phase"] == "confirm" and row["status"] == "completed"]


def _present(store: Store, kinds: Sequence[Kind]) -> dict[Kind, set[str]]:
    folders = {kind: posixpath.dirname(artifact_name(kind, "")) for kind in kinds}
    return {kind: {f"{folder}/{name}" for name in store.names(folder)} for kind, folder in folders.items()}


def _is_damaged(store: Store, kind: Kind, row: Row) -> bool:
    try:
        read_artifact(store, kind, row)
    except DamagedError:
        return True
    except FileNotFoundError:  # deleted since the folder was listed
        return False
    return False
