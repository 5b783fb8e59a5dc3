"""JSON files that hold the SHA-256 of their own content, and the one that marks a study's folder."""

from __future__ import annotations

import hashlib
import json
import posixpath
import shlex
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import urlencode

from topk_platform.errors import StoreError
from topk_platform.records.storage.store import MARK, Store
from topk_platform.specs.smoke import SMOKE

__all__ = [
    "FOLDER",
    "SCHEMA_VERSION",
    "DamagedError",
    "Mark",
    "command_of",
    "damaged",
    "read_checked",
    "with_checksum",
    "without_checksum",
]

_T = TypeVar("_T")

_SUM = "sha256"


class DamagedError(StoreError):
    """A file of a study is damaged or missing; the message names it and the remedy.

    Args:
        message: The message.
        name: The file's name in the study's folder.
    """

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


def with_checksum(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file with some content and its checksum.

    Args:
        content: Values that JSON can hold, without a key ``"sha256"``.

    Example:
        >>> without_checksum(with_checksum({"study": "digits"}))
        {'study': 'digits'}
    """
    return json.dumps({**content, _SUM: _sum(content)}, indent=1).encode()


def without_checksum(data: bytes) -> dict[str, Any]:
    """Return the content of a JSON file after comparing it with its checksum.

    Raises:
        ValueError: if the file is not a JSON object, or the content does not have its checksum.

    Example:
        >>> without_checksum(with_checksum({"study": "digits"}).replace(b"digits", b"digitS"))
        Traceback (most recent call last):
        ValueError: the content does not have its checksum
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("the content is not a JSON object")
    if content.pop(_SUM, None) != _sum(content):
        raise ValueError("the content does not have its checksum")
    return content


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_checked(store: Store, name: str, parse: Callable[[dict[str, Any]], _T]) -> _T | None:
    """Return the parsed content of a JSON file in a store; None if the file does not exist.

    Args:
        store: The study's folder.
        name: The file's name in it.
        parse: Returns the result of the content. Its errors mean that the file is damaged.

    Raises:
        DamagedError: if it is damaged; the message has its name and a remedy.
        StoreError: if it cannot be read.
    """
    try:
        return parse(without_checksum(store.read(name)))
    except FileNotFoundError:
        return None
    except StoreError:  # it is a ValueError too, but does not mean that the content is damaged
        raise
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise damaged(store, name) from error


def damaged(store: Store, name: str, how: str = "damaged", remedy: str = "") -> DamagedError:
    """Return the error for a damaged or missing file, to be raised by the caller.

    Args:
        store: The study's folder.
        name: The file's name in it.
        how: What is wrong with it.
        remedy: What to do about it; by default a repair.
    """
    usual = f"`{command_of(store, 'repair')}` keeps what is sound, and the next run makes the rest again"
    return DamagedError(f"store {store.uri!r}: {name} is {how}; {remedy or usual}", name)


SCHEMA_VERSION = 2
"""The version of the ledger's columns."""

FOLDER = "ledger"
"""The folder of a study's table until a repair makes a new one."""

_DEFAULT = "runs"  # the default of --store


@dataclass(frozen=True)
class Mark:
    """The content of ``ledger.json`` in a study's folder.

    Args:
        study: The study's name.
        schema_version: The version of the columns.
        identity: An identity that no other ledger has, not even one of a study with the same name.
        table: The folder of the table.
        checksums: Whether the table has checksums; if so, missing checksums are damage.
        identified: Whether a run has noted which rows count; if so, a missing note is damage.
    """

    study: str
    schema_version: int = SCHEMA_VERSION
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)
    table: str = FOLDER
    checksums: bool = False
    identified: bool = False

    @classmethod
    def read(cls, store: Store) -> Mark | None:
        """Return the mark of a study's folder; None if there is none.

        Raises:
            StoreError: if it is damaged, or cannot be read.
        """
        return read_checked(store, MARK, lambda content: cls(**_fields(content)))

    def write(self, store: Store) -> None:
        """Write the mark into a study's folder."""
        store.write(MARK, with_checksum(asdict(self)))

    def noted(self, store: Store, **changes: Any) -> Mark:
        """Return the mark with changes. Write it if it differs from this one."""
        changed = replace(self, **changes)
        if changed != self:
            changed.write(store)
        return changed


def command_of(store: Store, name: str, *arguments: str, reference: str = "") -> str:
    """Return a command about the study in a folder as a user types it, for messages.

    Args:
        store: The study's folder.
        name: The name of the command.
        arguments: The arguments after the study.
        reference: The study as ``package.module:attribute``; empty to name it by its folder.
    """
    folder, study = posixpath.split(store.uri)
    own = study.removesuffix(SMOKE)
    whole = f"{folder}?{urlencode(store.options)}" if store.options else folder
    where = [] if whole == _DEFAULT else ["--store", shlex.quote(whole)]
    smoke = [] if own == study else ["--smoke"]
    return " ".join(["topk", name, reference or own, *arguments, *where, *smoke])


def _fields(content: dict[str, Any]) -> dict[str, Any]:
    if content["schema_version"] != SCHEMA_VERSION:  # the other fields are unknown, and nobody reads them
        return {name: content[name] for name in ("study", "schema_version")}
    table = content["table"]
    if posixpath.basename(table) != table or not table:
        raise ValueError(f"table must be the name of a folder, got {table!r}")
    return content
