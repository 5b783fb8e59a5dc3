"""Damaged files of a study: they are moved into its folder ``damaged``, and never deleted."""

from __future__ import annotations

from topk_platform.records.storage.store import Store

__all__ = ["ASIDE", "move_aside"]

ASIDE = "damaged"
"""The folder of damaged files, in the study's folder."""


def move_aside(store: Store, name: str) -> str:
    """Move a file into the folder of damaged files, beside any earlier file of the same name; return its new name.

    Args:
        store: The study's folder.
        name: The file's name in it.

    Raises:
        StoreError: if the store cannot be written.
    """
    to, number = f"{ASIDE}/{name}", 0
    while store.exists(to):
        number += 1
        to = f"{ASIDE}/{name}.{number}"
    store.move(name, to)
    return to
