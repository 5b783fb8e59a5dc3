"""Trainings that are made up, as functions of the trial alone; what ends becomes rows, as in a run."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence

from topk_platform import Study
from topk_platform.identity import Identity
from topk_platform.protocol import StudyProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.records.history import ArmHistory, progress_of
from topk_platform.records.writer import trial_row
from topk_platform.specs import EpochRecord, Trial, TrialRecord

__all__ = ["SPAN", "histories_of", "keys", "run_on", "state_of", "trained"]

SPAN = 1_000_000  # between the numbers, and the seeds, of two searches


def trained(trial: Trial) -> TrialRecord:
    """What a made-up training returns."""
    draw = random.Random(trial.key)
    rate = float(trial.values.get("learning_rate", 0.1))  # type: ignore[arg-type]
    status, epochs, skill = "completed", [], -0.04 if not trial.arm.is_searched else 0.0
    if draw.random() < 0.1:
        return TrialRecord(trial, "diverged")
    for epoch in range(1, 5):
        good = round(0.9 + skill - 0.1 * abs(math.log10(rate) + 1.7) - 0.2 / epoch + 0.05 * draw.random(), 3)
        other = round(0.5 + 0.1 * abs(math.log10(rate) + 1) + 0.05 * draw.random(), 3)
        epochs.append(EpochRecord(epoch, 0.5, {"top1": other, "top3": good}, 1.0, 0.1))
        if good < dict(trial.stop_below).get(epoch, -9.0):
            status = "pruned"
            break
    validation = dict(epochs[-1].validation)
    test = validation if trial.phase == "confirm" and status == "completed" else None
    return TrialRecord(trial, status, "", validation, test, tuple(epochs), 4.0)  # type: ignore[arg-type]


def histories_of(study: Study, records: Iterable[TrialRecord]) -> dict[str, ArmHistory]:
    """What would be read of the records, in any order, from a ledger."""
    histories = {study.arm_id(arm): ArmHistory(arm, curves={}) for arm in study.arms}
    for record in records:
        if (history := histories.get(record.trial.arm_id)) is None:
            continue
        row = {f"{split}.{m}": None for split in ("validation", "test") for m in study.metrics}
        row |= trial_row(record)
        if record.trial.phase == "search":
            history.search[record.trial.number] = row
        else:
            history.confirm[record.trial.number, record.trial.seed] = row
        curve = {epoch.epoch: epoch.validation[history.arm.metric] for epoch in record.epochs}
        history.curves = {**history.curves, record.trial.key: curve}
    return histories


def state_of(study: Study, records: Sequence[TrialRecord] = ()) -> StudyProgress:
    identities = {study.arm_id(arm): Identity("c", "f") for arm in study.arms}
    return progress_of(study, identities, histories_of(study, records))


def run_on(
    study: Study, workers: int, seed: int, records: Sequence[TrialRecord] = (), most: float = math.inf
) -> list[TrialRecord]:
    """Run what is missing of a study, or so many trials of it; return the records of before and the new ones."""
    progress, order = state_of(study, records), random.Random(seed)
    known, running = list(records), []
    while len(known) - len(records) < most:
        while len(running) < workers and (trials := progress.next_trials()):
            running.append(trials)
        if not running:
            assert progress.left == 0
            break
        for trial in running.pop(order.randrange(len(running))):
            if progress.has_ended(trial):
                progress.release(trial)
                continue
            record = trained(trial)
            progress.end(trial, Ended.from_record(record))
            known.append(record)
    return known


def keys(records: Iterable[TrialRecord]) -> set[str]:
    return {record.trial.key for record in records}
