"""The file that marks a study's folder: it names the study and the folder of the study's table."""

from __future__ import annotations

import posixpath
import shlex
import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from topk_platform.records.storage.checked_json import read_checked, with_checksum
from topk_platform.records.storage.store import MARK, Store
from topk_platform.records.table.schema import SCHEMA_VERSION
from topk_platform.specs.study.smoke import SMOKE

__all__ = ["FOLDER", "Mark", "command_of", "repair_of"]

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
        remedy = f"{repair_of(store)} makes it again"
        return read_checked(store, MARK, remedy, lambda content: cls(**_fields(content)))

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


def repair_of(store: Store) -> str:
    """Return the command that repairs the study in a folder, for messages."""
    return f"`{command_of(store, 'repair')}`"


def _fields(content: dict[str, Any]) -> dict[str, Any]:
    if content["schema_version"] != SCHEMA_VERSION:  # the other fields are unknown, and nobody reads them
        return {name: content[name] for name in ("study", "schema_version")}
    table = content["table"]
    if posixpath.basename(table) != table or not table:
        raise ValueError(f"table must be the name of a folder, got {table!r}")
    return content
