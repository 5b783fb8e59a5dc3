"""Which schemas of a store this program reads, and what becomes of an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topk_platform.errors import StoreError
from topk_platform.records.schema import SCHEMA_VERSION

__all__ = ["OLDEST", "check_version", "raised"]

OLDEST = 2
"""The earliest schema that is read. Columns that came later are empty in such a store, and added by the next run."""


def check_version(uri: str, version: int) -> None:
    """Raise ``StoreError`` unless a store of this schema can be read.

    Args:
        uri: The store, as the user wrote it.
        version: The version in the file that marks it.
    """
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"store {uri!r} has schema version {version}, this program reads {OLDEST} to {SCHEMA_VERSION}: a newer one "
            "has written it, so upgrade topk-studies here"
        )
    if version < OLDEST:
        raise StoreError(
            f"store {uri!r} has schema version {version}, this program reads {OLDEST} to {SCHEMA_VERSION}: choose "
            "another --store"
        )


def raised(mark: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the mark of a store that this program is about to write, None where it stays.

    From then on, an earlier program refuses the store.

    Args:
        mark: The content of the file that marks it.

    Example:
        >>> raised({"study": "s", "schema_version": SCHEMA_VERSION}) is None
        True
        >>> raised({"study": "s", "schema_version": 0})["schema_version"] == SCHEMA_VERSION
        True
    """
    return (
        {**mark, "schema_version": SCHEMA_VERSION} if int(mark["schema_version"]) < SCHEMA_VERSION else None
    )
