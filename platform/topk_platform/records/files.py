"""The files that belong to a confirmation: their names, their SHA-256, and which are missing or damaged."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Literal, TypeVar

import pyarrow as pa

from topk_platform.errors import StoreError
from topk_platform.records.rows import Row
from topk_platform.records.storage.checked_json import DamagedError, command_of, damaged
from topk_platform.records.storage.store import Store

__all__ = [
    "KINDS",
    "NEEDED",
    "Kind",
    "Unsound",
    "artifact_name",
    "damaged_artifacts",
    "missing_artifacts",
    "read_artifact",
    "read_parsed",
    "write_artifact",
]

_T = TypeVar("_T")

Kind = Literal["ranks", "guesses", "network"]

KINDS: tuple[Kind, ...] = ("ranks", "guesses", "network")
"""The kinds of files of a completed confirmation."""

_NAMES = {"ranks": "ranks/{}.parquet", "guesses": "guesses/{}.parquet", "network": "models/{}.safetensors"}
_ASKING: dict[Kind, list[str]] = {
    "network": ["--networks"]
}  # options of the run that makes such a file again


def artifact_name(kind: Kind, key: str) -> str:
    """Return the name of a confirmation's file inside the study's folder.

    Example:
        >>> artifact_name("network", "0a1b")
        'models/0a1b.safetensors'
    """
    return _NAMES[kind].format(key)


def write_artifact(store: Store, kind: Kind, key: str, content: bytes) -> str:
    """Write a confirmation's file; return the SHA-256 of its bytes, for the confirmation's record.

    Raises:
        StoreError: if it cannot be written.
    """
    store.write(artifact_name(kind, key), content)
    return hashlib.sha256(content).hexdigest()


def read_artifact(store: Store, kind: Kind, row: Row) -> bytes:
    """Return the bytes of a confirmation's file after comparing them with the recorded SHA-256.

    Raises:
        FileNotFoundError: if the file does not exist.
        DamagedError: if its bytes are not those that were recorded, or none were.
        StoreError: if it cannot be read.
    """
    content = store.read(artifact_name(kind, row["key"]))
    if hashlib.sha256(content).hexdigest() != _recorded(store, row).get(kind):
        raise _damaged(store, kind, row)
    return content


def read_parsed(store: Store, kind: Kind, row: Row, parse: Callable[[bytes], _T]) -> _T | None:
    """Return a confirmation's file as parsed by a function; None if the file does not exist.

    Args:
        store: The study's folder.
        kind: Which file.
        row: The confirmation's row of the ledger.
        parse: The function, from bytes to the result. Its errors mean that the file is damaged.

    Raises:
        DamagedError: if the file is damaged.
        StoreError: if it cannot be read.
    """
    try:
        content = read_artifact(store, kind, row)
    except FileNotFoundError:
        return None
    try:
        return parse(content)
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        raise _damaged(store, kind, row) from error


def _damaged(store: Store, kind: Kind, row: Row) -> DamagedError:
    name = artifact_name(kind, row["key"])
    again = f"`{command_of(store, 'run', *_ASKING.get(kind, ()))}` trains that confirmation again"
    return damaged(store, name, remedy=again)


def _recorded(store: Store, row: Row) -> dict[str, str]:
    """Return the SHA-256 of a confirmation's files, by kind; kinds that its row lacks are missing."""
    text = row.get("artifacts")
    if text is None:
        return {}
    try:
        sums: dict[str, str] = json.loads(text)["sha256"]
        return dict(sums)
    except (ValueError, LookupError, TypeError) as error:
        raise StoreError(
            f"store {store.uri!r}: the ledger's column artifacts of trial {row['key']} cannot be read"
        ) from error


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
    missing, keys = [], [row["key"] for row in _completed(rows)]
    for kind in kinds if keys else ():
        present = _present(store, kind)
        missing += [Unsound(key, kind) for key in keys if artifact_name(kind, key) not in present]
    return missing


def _present(store: Store, kind: Kind) -> set[str]:
    folder = posixpath.dirname(artifact_name(kind, ""))
    return {f"{folder}/{name}" for name in store.names(folder)}


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
    completed, damaged = _completed(rows), list[Unsound]()
    for kind in kinds if completed else ():
        present = _present(store, kind)  # to ask for files that are not there would take a request each
        rows = [row for row in completed if artifact_name(kind, row["key"]) in present]
        # Networks are read one at a time, because several may fill the memory.
        with ThreadPoolExecutor(1 if kind == "network" else _AT_ONCE) as pool:
            unsound = pool.map(partial(_is_damaged, store, kind), rows)
            damaged += [Unsound(row["key"], kind) for row in compress(rows, unsound)]
    return damaged


def _completed(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["phase"] == "confirm" and row["status"] == "completed"]


def _is_damaged(store: Store, kind: Kind, row: Row) -> bool:
    try:
        read_artifact(store, kind, row)
    except DamagedError:
        return True
    except FileNotFoundError:  # it has been deleted meanwhile
        return False
    return False
