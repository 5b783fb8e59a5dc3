"""The ledger, and what is read from it.

Each name is imported on first use: a worker needs a store but no table, and machines that only train may lack Delta
Lake and obstore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.references import first_use

if TYPE_CHECKING:
    from topk_platform.records.files import (
        NEEDED,
        Unsound,
        artifact_name,
        damaged_artifacts,
        missing_artifacts,
        quarantine,
    )
    from topk_platform.records.history import ArmHistory, ArmResults, progress_of, results_of
    from topk_platform.records.ledger import Ledger, instead_of, is_study, nothing_of
    from topk_platform.records.merging import merge
    from topk_platform.records.networks import SavedModel, StoreKeeper, forget, read_model, save_model
    from topk_platform.records.per_image import Guesses, Ranks, read_all_ranks, read_guesses, read_ranks
    from topk_platform.records.recorded import (
        LastRun,
        Recorded,
        RecordedTrial,
        as_recorded,
        find,
        note_plan,
        read_plan,
    )
    from topk_platform.records.repairing import Repaired, repair
    from topk_platform.records.rows import Row
    from topk_platform.records.run_notes import DataNote, OpenTrial, Samples, Unfinished, note_data, read_data
    from topk_platform.records.states import (
        ArmState,
        StudyState,
        TrialState,
        live_state,
        note_state,
        read_state,
    )
    from topk_platform.records.storage.checked_json import SCHEMA_VERSION, DamagedError
    from topk_platform.records.storage.lease import check_undriven, driven, last_seen, unless_ended
    from topk_platform.records.storage.store import Store
    from topk_platform.records.study_rows import StudyRows, last_counted, read_history
    from topk_platform.records.writer import Writer, is_current, write_snapshot

__all__ = [
    "NEEDED",
    "SCHEMA_VERSION",
    "ArmHistory",
    "ArmResults",
    "ArmState",
    "DamagedError",
    "DataNote",
    "Guesses",
    "LastRun",
    "Ledger",
    "OpenTrial",
    "Ranks",
    "Recorded",
    "RecordedTrial",
    "Repaired",
    "Row",
    "Samples",
    "SavedModel",
    "Store",
    "StoreKeeper",
    "StudyRows",
    "StudyState",
    "TrialState",
    "Unfinished",
    "Unsound",
    "Writer",
    "artifact_name",
    "as_recorded",
    "check_undriven",
    "damaged_artifacts",
    "driven",
    "find",
    "forget",
    "instead_of",
    "is_current",
    "is_study",
    "last_counted",
    "last_seen",
    "live_state",
    "merge",
    "missing_artifacts",
    "note_data",
    "note_plan",
    "note_state",
    "nothing_of",
    "progress_of",
    "quarantine",
    "read_all_ranks",
    "read_data",
    "read_guesses",
    "read_history",
    "read_model",
    "read_plan",
    "read_ranks",
    "read_state",
    "repair",
    "results_of",
    "save_model",
    "unless_ended",
    "write_snapshot",
]

if not TYPE_CHECKING:  # with it, a type checker would accept any name
    __getattr__ = first_use(__name__)
