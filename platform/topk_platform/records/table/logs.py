"""The log of a study's table, file by file: which of them is damaged, and what each says."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from topk_platform.records.storage.checked_json import DamagedError, damaged
from topk_platform.records.storage.store import Store
from topk_platform.records.table.checksums import LOG, Checksums, log_name, version_of
from topk_platform.records.table.mark import repair_of

__all__ = ["AFTER", "damaged_log", "follows", "log_lines", "missing", "remedy", "unsound"]

AFTER = "topk.after"
"""The key of a commit's metadata that holds the version of the newest checksums when it was made."""


def unsound(store: Store, name: str) -> DamagedError:
    """Return the error for a part of a table, whose trials run again."""
    return damaged(store, name, _runs_again(store), "damaged or missing")


def missing(store: Store, name: str) -> DamagedError:
    """Return the error for a file of a table that is not there."""
    return damaged(store, name, remedy(store), "missing")


def _runs_again(store: Store) -> str:
    return f"{repair_of(store)} sets it aside, so that its trials run again"


def remedy(store: Store) -> str:
    """Return what to do about a damaged log."""
    return f"{repair_of(store)} makes a sound table of what can be read"


def damaged_log(store: Store, folder: str, sums: Checksums | None) -> DamagedError | None:
    """Return the error for the first file of a log that is damaged or missing; None if all are sound.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
        sums: The table's checksums, if it has any; without them, a file is sound that can be read.
    """
    names = [f"{LOG}/{name}" for name in store.names(f"{folder}/{LOG}", ".json")]
    known = sums.log if sums else {}
    for name in sorted({*names, *known}):
        if name not in names and name.endswith(".json"):
            return missing(store, f"{folder}/{name}")
        if not _is_sound(store, f"{folder}/{name}", known.get(name)):
            return damaged(store, f"{folder}/{name}", remedy(store))
    versions = sorted(version for name in names if (version := version_of(name)) >= 0)
    low, high = next((pair for pair in pairwise(versions) if pair[1] != pair[0] + 1), (0, 0))
    if (
        sums and low >= sums.version and high
    ):  # a file of something else, for no process left more than a commit
        return damaged(store, f"{folder}/{log_name(high)}", remedy(store))
    return missing(store, f"{folder}/{log_name(low + 1)}") if high else None


def _is_sound(store: Store, name: str, digest: str | None) -> bool:
    try:
        return bool(log_lines(store.read(name))) if digest is None else store.digest(name) == digest
    except FileNotFoundError:
        return False


def log_lines(content: bytes) -> list[dict[str, Any]]:
    """Return the actions of a log file; empty if it is damaged, as there is no commit without actions."""
    try:
        found = [json.loads(line) for line in content.splitlines()]
    except (ValueError, RecursionError):
        return []
    return found if all(isinstance(action, dict) for action in found) else []


def follows(content: bytes, version: int) -> bool:
    """Return whether a commit was made after a version.

    A copy of another commit under this number was not, and neither was a file of something else.

    Args:
        content: The commit's log file.
        version: The version whose checksums were the newest then, or an earlier one.
    """
    infos = [action["commitInfo"] for action in log_lines(content) if "commitInfo" in action]
    after = infos[0].get(AFTER) if infos and isinstance(infos[0], dict) else None
    return isinstance(after, str) and after.isdecimal() and int(after) >= version
