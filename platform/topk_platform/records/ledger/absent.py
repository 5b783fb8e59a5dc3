"""The error of a store that holds nothing of a study, with what it holds instead."""

from __future__ import annotations

from pathlib import Path

from topk_platform.errors import StoreError
from topk_platform.records.storage.store import MARK, Store
from topk_platform.specs.checks import first_few
from topk_platform.specs.study.smoke import SMOKE

__all__ = ["instead_of", "nothing_of"]


def nothing_of(store: str | Path, study: str) -> StoreError:
    """Return the error of a store without results of a study, to be raised by the caller.

    Args:
        store: Folder or URI of the results.
        study: The study's name.
    """
    return StoreError(f"store {str(store)!r} holds nothing of study {study!r}{instead_of(store, study)}")


def instead_of(store: str | Path, study: str) -> str:
    """Return what a store holds instead of a study, to end the line of an error; empty if it is empty.

    Args:
        store: Folder or URI of the results.
        study: The name of the study that is missing.
    """
    root = Store.open(store)
    if root.local is not None and not root.local.exists():
        return ": there is no such folder"
    held = [name for name in root.folders() if root.exists(f"{name}/{MARK}")]
    small = f"{study}{SMOKE}"
    if small in held:
        return f", but of its small version {small!r}: add --smoke to see it"
    return f": it holds {first_few(held)}" if held else ""
