"""The study that a run was asked for, noted in the store for commands that do not have its definition."""

from __future__ import annotations

import json
from contextlib import suppress

from topk_platform.errors import StoreError
from topk_platform.records.storage.checked_json import with_checksum, without_checksum
from topk_platform.records.storage.store import Store
from topk_platform.specs import Study

__all__ = ["note_plan", "read_plan"]

_FILE = "plan.json"


def note_plan(store: Store, study: Study) -> None:
    """Write the arms and the budget that a run was asked for into the study's folder.

    Raises:
        StoreError: if it cannot be written.
    """
    store.write(_FILE, with_checksum({"study": json.loads(study.to_json())}))


def read_plan(store: Store) -> Study | None:
    """Return the study that the last run was asked for; None if it is not noted or cannot be read."""
    with suppress(FileNotFoundError, StoreError, ValueError, KeyError, TypeError, RecursionError):
        return Study.from_json(json.dumps(without_checksum(store.read(_FILE))["study"]))
    return None
