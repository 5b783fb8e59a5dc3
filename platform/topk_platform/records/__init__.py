"""The ledger, what is read from it, and the MLflow sink that is filled from it.

Each name is imported on first use: a worker needs a store but no table, and machines that only train may lack Delta
Lake and obstore.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topk_platform.records.adopted import ADOPTED, Evidence, note_adopted, read_adopted, take_back
    from topk_platform.records.artifacts import artifact_name
    from topk_platform.records.checked import DamagedError
    from topk_platform.records.checkpoints import StoreKeeper, forget
    from topk_platform.records.guesses import Guesses, read_guesses
    from topk_platform.records.history import (
        ArmHistory,
        ArmResults,
        add_curves,
        last_counted,
        read_history,
        results_of,
    )
    from topk_platform.records.lease import check_undriven, driven
    from topk_platform.records.ledger import Ledger, is_study
    from topk_platform.records.lookup import Found, find
    from topk_platform.records.models import SavedModel, read_model, save_model
    from topk_platform.records.ranks import Ranks, read_all_ranks, read_ranks
    from topk_platform.records.repairing import Repaired, repair
    from topk_platform.records.schema import SCHEMA_VERSION
    from topk_platform.records.snapshot import is_current, write_snapshot
    from topk_platform.records.states import ArmState, GpuUse, StudyState, note_state, read_state, trend_of
    from topk_platform.records.store import Store
    from topk_platform.records.syncing import open_sink, sync
    from topk_platform.records.tally import Tally
    from topk_platform.records.tracked import tracking_uri
    from topk_platform.records.tracked_models import Graph, Graphs
    from topk_platform.records.tracked_place import moved
    from topk_platform.records.tracking import Extras, TrackingSink
    from topk_platform.records.tracking_check import check_tracking
    from topk_platform.records.undone import OpenTrial, Undone
    from topk_platform.records.unsound import (
        NEEDED,
        Unsound,
        damaged_artifacts,
        missing_artifacts,
        set_aside,
    )
    from topk_platform.records.views import Row
    from topk_platform.records.writer import Writer

__all__ = [
    "ADOPTED",
    "NEEDED",
    "SCHEMA_VERSION",
    "ArmHistory",
    "ArmResults",
    "ArmState",
    "DamagedError",
    "Evidence",
    "Extras",
    "Found",
    "GpuUse",
    "Graph",
    "Graphs",
    "Guesses",
    "Ledger",
    "OpenTrial",
    "Ranks",
    "Repaired",
    "Row",
    "SavedModel",
    "Store",
    "StoreKeeper",
    "StudyState",
    "Tally",
    "TrackingSink",
    "Undone",
    "Unsound",
    "Writer",
    "add_curves",
    "artifact_name",
    "check_tracking",
    "check_undriven",
    "damaged_artifacts",
    "driven",
    "find",
    "forget",
    "is_current",
    "is_study",
    "last_counted",
    "missing_artifacts",
    "moved",
    "note_adopted",
    "note_state",
    "open_sink",
    "read_adopted",
    "read_all_ranks",
    "read_guesses",
    "read_history",
    "read_model",
    "read_ranks",
    "read_state",
    "repair",
    "results_of",
    "save_model",
    "set_aside",
    "sync",
    "take_back",
    "tracking_uri",
    "trend_of",
    "write_snapshot",
]

_HOMES = {
    "ADOPTED": "adopted",
    "ArmHistory": "history",
    "ArmResults": "history",
    "ArmState": "states",
    "Evidence": "adopted",
    "DamagedError": "checked",
    "Extras": "tracking",
    "Found": "lookup",
    "GpuUse": "states",
    "Graph": "tracked_models",
    "Graphs": "tracked_models",
    "Guesses": "guesses",
    "Ledger": "ledger",
    "NEEDED": "unsound",
    "OpenTrial": "undone",
    "Ranks": "ranks",
    "Repaired": "repairing",
    "Row": "views",
    "SCHEMA_VERSION": "schema",
    "SavedModel": "models",
    "Store": "store",
    "StoreKeeper": "checkpoints",
    "StudyState": "states",
    "Tally": "tally",
    "TrackingSink": "tracking",
    "Undone": "undone",
    "Unsound": "unsound",
    "Writer": "writer",
    "add_curves": "history",
    "artifact_name": "artifacts",
    "check_tracking": "tracking_check",
    "check_undriven": "lease",
    "damaged_artifacts": "unsound",
    "driven": "lease",
    "find": "lookup",
    "forget": "checkpoints",
    "is_current": "snapshot",
    "is_study": "ledger",
    "last_counted": "history",
    "missing_artifacts": "unsound",
    "moved": "tracked_place",
    "note_adopted": "adopted",
    "note_state": "states",
    "open_sink": "syncing",
    "read_adopted": "adopted",
    "read_guesses": "guesses",
    "read_history": "history",
    "read_all_ranks": "ranks",
    "read_model": "models",
    "read_ranks": "ranks",
    "read_state": "states",
    "trend_of": "states",
    "repair": "repairing",
    "results_of": "history",
    "save_model": "models",
    "set_aside": "unsound",
    "sync": "syncing",
    "take_back": "adopted",
    "tracking_uri": "tracked",
    "write_snapshot": "snapshot",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
