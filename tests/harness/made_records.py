"""A study, and the records and files of trials that nobody trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from made_studies import FIRST, RATE, searched, small_study

from topk_platform import Choice, Int, Loss, Recipe, Study
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import save_guesses, save_ranks
from topk_platform.records.storage.delta import Writing
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import ledger_table
from topk_platform.specs import EpochRecord, Phase, Scalar, Trial, TrialRecord

__all__ = ["a_row", "commit", "filled", "keep_made_up", "make_record", "make_study", "make_wider_study"]


def make_study(*more: Loss) -> Study:
    """Return a study whose arms differ in their losses."""
    return small_study(searched(), *more, recipe=Recipe(epochs=2), trials=4, seeds=2)


def make_wider_study() -> Study:
    """Return the same study with another arm, which has further parameters."""
    space = RATE | {"samples": Int(1, 9), "mode": Choice(("a", 2))}
    return make_study(Loss("noised_topk_hinge", space, FIRST | {"samples": 3, "mode": "a"}))


def make_record(
    study: Study,
    number: int = 0,
    *,
    arm: int = 0,
    seed: int = 0,
    status: str = "completed",
    top3: float = 0.5,
    code: str = "c",
    values: Mapping[str, Scalar] | None = None,
    versions: Mapping[str, str] | None = None,
) -> TrialRecord:
    """Return the record of a trial that nobody trained."""
    chosen = study.arms[arm]
    phase: Phase = "confirm" if seed else "search"
    of_arm = (study.name, study.arm_id(chosen), chosen, study.topk)
    trial = Trial(*of_arm, phase, number, seed, 0, values or chosen.loss.first, "f", code)
    metrics = dict.fromkeys(study.metrics, top3)
    epochs = tuple(EpochRecord(e, 1.0 / e, metrics, 0.5, 0.1) for e in (1, 2))
    why, tested = "" if status == "completed" else "why", metrics if seed else None
    times = (1.0, 1000.0 + number, 1001.0 + number)
    return TrialRecord(trial, status, why, metrics, tested, epochs, *times, versions or {"torch": "x"})  # type: ignore[arg-type]


def filled(folder: Path | str, study: Study, *records: TrialRecord) -> Ledger:
    """Return the study's ledger in a store's folder after one more run that wrote these records."""
    ledger = Ledger.open(Store.open(folder), study.name)
    with ledger.writing(study) as writer:
        for record in records:
            writer.put(record)
    return ledger


def commit(table: Writing, *records: TrialRecord) -> None:
    """Commit records at once, and by themselves."""
    table.append(ledger_table(records, table.schema))


def a_row(key: str, **sums: str) -> dict[str, str]:
    """Return what a ledger's row says of a confirmation's files: the SHA-256 of each kind."""
    return {"key": key, "artifacts": json.dumps({"sha256": sums})}


def keep_made_up(store: Store, trial: Trial) -> dict[str, str]:
    """Store ranks and guesses of two made-up images for a confirmation; return their SHA-256 for its record.

    Arms have images of their own, so that intervals cover seeds alone.
    """
    if trial.phase != "confirm":
        return {}
    ranks, guesses = torch.zeros(4, 2, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64)
    return {
        "ranks": save_ranks(store, trial, ranks, trial.arm_id),
        "guesses": save_guesses(store, trial, guesses, trial.arm_id),
    }
