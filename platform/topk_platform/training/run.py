"""One trial from its first epoch to its record."""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import torch
from torch import nn

from topk_platform.specs import EpochRecord, Status, Trial, TrialRecord
from topk_platform.training.process import lent_process
from topk_platform.training.session import DivergedError, Session

__all__ = ["SaveModel", "Training", "finish", "run_trial"]

SaveModel = Callable[[Trial, nn.Module], None]
"""Keeps the trained network of a confirmed run."""

Training = Generator[EpochRecord, None, TrialRecord]


@dataclass
class _Progress:
    trial: Trial
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)
    epochs: list[EpochRecord] = field(default_factory=list)
    test: dict[str, float] | None = None

    def end(self, status: Status, reason: str = "") -> TrialRecord:
        return TrialRecord(
            trial=self.trial,
            status=status,
            reason=reason,
            validation=self.epochs[-1].validation if self.epochs else {},
            test=self.test,
            epochs=tuple(self.epochs),
            train_seconds=sum(epoch.seconds for epoch in self.epochs),
            started=self.started,
            ended=self.started + time.perf_counter() - self.clock,
            versions=_versions(self.trial.device),
        )


def _versions(device: str) -> dict[str, str]:
    name = (
        torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_available() else platform.machine()
    )
    return {"python": platform.python_version(), "torch": torch.__version__, "device": f"{device} {name}"}


def run_trial(trial: Trial, save_model: SaveModel | None = None) -> Training:
    """Train one trial, yielding each epoch's record; the generator returns the trial's.

    Whatever the trial's own code does wrong ends in its record: NaN and Inf as ``diverged``, an
    exception as ``failed`` with its reason. Only the process's death is left to the caller.

    Args:
        trial: All that determines the result.
        save_model: Called once with the network of a completed confirmation.

    Returns:
        A generator; ``record = yield from run_trial(trial)``.
    """
    progress = _Progress(trial)
    try:
        with lent_process(trial):
            return (yield from _run(progress, save_model))
    except DivergedError as error:
        return progress.end("diverged", str(error))
    except Exception as error:  # noqa: BLE001 - what a user's code raises is the trial's result, told with its reason
        return progress.end("failed", _reason(error))


def finish(training: Training) -> TrialRecord:
    """Run a training to its end and return the trial's record."""
    while True:
        try:
            next(training)
        except StopIteration as end:
            record: TrialRecord = end.value
            return record


def _reason(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno} in {frame.name})"


def _run(progress: _Progress, save_model: SaveModel | None) -> Training:
    trial = progress.trial
    session = Session.prepare(trial)
    stop_below = dict(trial.stop_below)
    for number in range(1, session.recipe.epochs + 1):
        record = _epoch(session, number)
        progress.epochs.append(record)
        yield record
        if record.validation[trial.arm.metric] < stop_below.get(number, float("-inf")):
            return progress.end(
                "pruned", f"{trial.arm.metric} below {stop_below[number]:.6g} after epoch {number}"
            )
    if trial.phase == "confirm":
        progress.test = session.evaluate("test")
        if save_model is not None:
            save_model(trial, session.model)
    return progress.end("completed")


def _epoch(session: Session, number: int) -> EpochRecord:
    began = time.perf_counter()
    loss, rate = session.train_epoch()
    validation = session.evaluate("validation")
    return EpochRecord(number, loss, validation, time.perf_counter() - began, rate)
