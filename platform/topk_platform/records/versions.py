"""Which schemas of a store this program reads. A store of an earlier one becomes of this one when it is written."""

from __future__ import annotations

from topk_platform.errors import StoreError
from topk_platform.records.schema import SCHEMA_VERSION

__all__ = ["OLDEST", "check_version"]

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
