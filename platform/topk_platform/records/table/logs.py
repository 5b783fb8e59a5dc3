"""The log of a study's table, file by file: finding the damaged ones, and reading the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from topk_platform.records.storage.checked_json import DamagedError, damaged
from topk_platform.records.storage.store import Store
from topk_platform.records.table.checksums import LOG, Checksums, log_name, version_of
from topk_platform.records.table.mark import repair_of

__all__ = ["AFTER", "damaged_logs", "follows", "missing", "remedy", "unsound"]

AFTER = "topk.after"
"""The key in a commit's metadata for the version of the checksums that were the newest at that time."""


def unsound(store: Store, name: str) -> DamagedError:
    """Return the error for a damaged or missing part of a table. After a repair, its trials run again."""
    return damaged(store, name, _runs_again(store), "damaged or missing")


def missing(store: Store, name: str) -> DamagedError:
    """Return the error for a missing file of a table."""
    return damaged(store, name, remedy(store), "missing")


def _runs_again(store: Store) -> str:
    return f"{repair_of(store)} sets it aside, so that its trials run again"


def remedy(store: Store) -> str:
    """Return the remedy for a damaged log, for messages."""
    return f"{repair_of(store)} makes a sound table of what can be read"


def damaged_logs(store: Store, folder: str, sums: Checksums | None) -> Iterator[DamagedError]:
    """Yield an error for each damaged or missing file of a log.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
        sums: The table's checksums, if it has any; without them, every file that can be read counts as sound.
    """
    names = [f"{LOG}/{name}" for name in store.names(f"{folder}/{LOG}", ".json")]
    known = sums.log if sums else {}
    for name in sorted({*names, *known}):
        if name not in names and name.endswith(".json"):
            yield missing(store, f"{folder}/{name}")
        elif not _is_sound(store, f"{folder}/{name}", known.get(name)):
            yield damaged(store, f"{folder}/{name}", remedy(store))
    versions = sorted(version for name in names if (version := version_of(name)) >= 0)
    low, high = next((pair for pair in pairwise(versions) if pair[1] != pair[0] + 1), (0, 0))
    if sums and low >= sums.version and high:  # a foreign file: a killed process leaves at most one commit
        yield damaged(store, f"{folder}/{log_name(high)}", remedy(store))
    elif high:
        yield missing(store, f"{folder}/{log_name(low + 1)}")


def _is_sound(store: Store, name: str, digest: str | None) -> bool:
    try:
        return bool(_log_lines(store.read(name))) if digest is None else store.digest(name) == digest
    except FileNotFoundError:
        return False


def _log_lines(content: bytes) -> list[dict[str, Any]]:
    """Return the actions of a log file; none if it is damaged, because every commit has actions."""
    try:
        actions = [json.loads(line) for line in content.splitlines()]
    except (ValueError, RecursionError):
        return []
    return actions if all(isinstance(action, dict) for action in actions) else []


def follows(content: bytes, version: int) -> bool:
    """Return whether a commit was made after a version.

    The answer is False for a foreign file, and for a copy of another commit under this number.

    Args:
        content: The commit's log file.
        version: The version.
    """
    infos = [action["commitInfo"] for action in _log_lines(content) if "commitInfo" in action]
    after = infos[0].get(AFTER) if infos and isinstance(infos[0], dict) else None
    return isinstance(after, str) and after.isdecimal() and int(after) >= version
