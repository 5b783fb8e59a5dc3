"""The files that belong to a confirmation: their names, and the check of their SHA-256 whenever they are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Literal, TypeVar

import pyarrow as pa

from topk_platform.errors import StoreError
from topk_platform.records.storage.checked_json import DamagedError, damaged
from topk_platform.records.storage.store import Store
from topk_platform.records.table.mark import command_of
from topk_platform.records.table.rows import Row

__all__ = ["KINDS", "Kind", "artifact_name", "read_artifact", "read_parsed", "write_artifact"]

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

    Args:
        store: The study's folder.
        kind: Which file.
        row: The confirmation's row of the ledger.

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
    return damaged(
        store, name, f"`{command_of(store, 'run', *_ASKING.get(kind, ()))}` trains that confirmation again"
    )


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
