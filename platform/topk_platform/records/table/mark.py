"""The file that marks a study's folder: whose records it holds, and in which of its folders the table is."""

from __future__ import annotations

import posixpath
import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from topk_platform.records.storage.checked_json import damaged, read_checked, written
from topk_platform.records.storage.store import MARK, Store
from topk_platform.records.table.schema import OLDEST, SCHEMA_VERSION

__all__ = ["FOLDER", "Mark", "repair_of"]

FOLDER = "ledger"
"""The folder of a study's table, until a repair has made another one."""


@dataclass(frozen=True)
class Mark:
    """What ``ledger.json`` says of a study's folder.

    Args:
        study: The study's name.
        schema_version: The version of the columns.
        identity: An identity that no other ledger has, not even one of a study with the same name.
        table: The folder of the table.
        checksums: Whether the table has checksums, so that their absence is damage.
        identified: Whether a run has noted which rows count, so that a missing note is damage.
    """

    study: str
    schema_version: int = SCHEMA_VERSION
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)
    table: str = FOLDER
    checksums: bool = False
    identified: bool = False

    @classmethod
    def read(cls, store: Store) -> Mark | None:
        """Return the mark of a study's folder; None where there is none.

        Raises:
            StoreError: if it is damaged, or cannot be read.
        """
        found = read_checked(store, MARK, _anew(store))
        if found is None:
            return None
        try:
            return cls(**_fields(found))
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(store, MARK, _anew(store)) from error

    def write(self, store: Store) -> None:
        """Write it into a study's folder."""
        store.write(MARK, written(asdict(self)))

    def noted(self, store: Store, **changes: Any) -> Mark:
        """Return it with changes, and write it unless it has them already."""
        changed = replace(self, **changes)
        if changed != self:
            changed.write(store)
        return changed


def repair_of(store: Store) -> str:
    """Return the command that repairs the study of a folder."""
    return f"`topk repair {posixpath.basename(store.root)}`"


def _anew(store: Store) -> str:
    return f"{repair_of(store)} makes it anew"


def _fields(found: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a mark, with those that older versions did not write."""
    if not OLDEST <= int(found["schema_version"]) <= SCHEMA_VERSION:  # whose other fields may be any
        return {name: found[name] for name in ("study", "schema_version")}
    table = str(found.get("table", FOLDER))
    if posixpath.basename(table) != table or not table:
        raise ValueError(f"no name of a folder: {table!r}")
    return {
        "identity": "",
        **found,
        "study": str(found["study"]),
        "schema_version": int(found["schema_version"]),
        "table": table,
    }
