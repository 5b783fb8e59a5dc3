"""One trial, or several as an ensemble, from the first epoch to the records."""

from __future__ import annotations

import math
import platform
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from topk_platform.errors import ChangedError, MissingDataError
from topk_platform.specs import Trial, TrialRecord
from topk_platform.training.clock import Stopwatch
from topk_platform.training.ensemble import Ensemble
from topk_platform.training.epoch import never
from topk_platform.training.machine import environment
from topk_platform.training.member import Lap, Member, pick
from topk_platform.training.process import lent_process, process_state, restore_process
from topk_platform.training.session import Session
from topk_platform.training.setup import Learner

__all__ = ["Keeper", "Training", "finish", "run_trials"]

Training = Generator[int, None, list[TrialRecord]]


class Keeper(Protocol):
    """Where trials keep what must outlive their process."""

    @property
    def seconds(self) -> float:
        """The least time between two checkpoints."""
        ...

    def load(self, trials: Sequence[Trial]) -> dict[str, Any] | None:
        """Return the last checkpoint of these trials, or None."""
        ...

    def save(self, trials: Sequence[Trial], step: int, state: dict[str, Any]) -> None:
        """Keep the checkpoint of a step, which rises from one to the next: tensors and plain data."""
        ...

    def save_model(self, trial: Trial, model: nn.Module) -> None:
        """Keep the network of a completed confirmation."""
        ...


@dataclass
class _Group:
    """The trials that train together, mostly one."""

    members: list[Member]
    keeper: Keeper | None
    watch: Stopwatch
    epoch: int = 0  # those that have ended
    test: dict[str, dict[str, float]] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)
    lap: float = 0.0
    saved: float = 0.0

    @property
    def trials(self) -> list[Trial]:
        return [member.trial for member in self.members]

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.running]

    @property
    def device(self) -> str:
        return self.trials[0].device

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.clock

    @property
    def due(self) -> float:
        """When the next checkpoint is, by the clock that ``time.perf_counter`` reads."""
        return math.inf if self.keeper is None else self.clock + self.saved + self.keeper.seconds

    def record(self, member: Member) -> TrialRecord:
        trial = member.trial
        return TrialRecord(
            trial=trial,
            status=member.status or "failed",
            reason=member.reason,
            validation=member.validation(),
            test=self.test.get(trial.key),
            epochs=tuple(member.epochs),
            train_seconds=sum(epoch.seconds for epoch in member.epochs),
            started=self.started,
            ended=self.started + self.elapsed,
            versions=_versions(trial.device),
        )


def _versions(device: str) -> dict[str, str]:
    there = (
        device == "cpu" or torch.cuda.is_available()
    )  # a trial that failed for want of a GPU has a record too
    return {"python": platform.python_version(), **(environment(device) if there else {})}


def run_trials(
    trials: Sequence[Trial], keeper: Keeper | None = None, *, interruptible: bool = True
) -> Training:
    """Train a trial, or several as an ensemble; yield now and then, return the records.

    Whatever the trials' own code does wrong ends in their records: NaN and Inf as ``diverged``, an exception or an
    exit as ``failed`` with its reason. The process's death is left to the caller; with a keeper the same call then
    goes on from the last checkpoint, to the same history and weights, on the CPU bit for bit.

    Args:
        trials: One, or those of one ensemble in their order.
        keeper: Keeps checkpoints and the networks of completed confirmations.
        interruptible: Whether a ``KeyboardInterrupt`` is somebody's at the terminal, and goes on to the caller, rather
            than one that the trials' own code raises.

    Returns:
        A generator; ``records = yield from run_trials(trials)``. It yields how many epochs have ended, at each that
        was validated and at checkpoints within one.

    Raises:
        ChangedError: if the data at hand are not those that the trials were planned with: no result of theirs.
        MissingDataError: if they are not there.
    """
    group = _Group([Member(trial) for trial in trials], keeper, Stopwatch(trials[0].device))
    try:
        with lent_process(trials[0]):
            yield from _run(group)
    except (ChangedError, MissingDataError, GeneratorExit):
        raise
    except BaseException as error:  # what a user's code raises is the trial's result, told with its reason
        if interruptible and isinstance(error, KeyboardInterrupt):
            raise
        for member in group.running:
            member.end("failed", _reason(error, member.trial))
    return [group.record(member) for member in group.members]


def finish(training: Training) -> list[TrialRecord]:
    """Run a training to its end and return the records."""
    while True:
        try:
            next(training)
        except StopIteration as end:
            records: list[TrialRecord] = end.value
            return records


def _reason(error: BaseException, trial: Trial) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno} in {frame.name})"
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error):
        size = trial.parameters.get("batch_size", trial.arm.recipe.batch_size)
        hint = "" if trial.together else ", `topk probe` names the largest that fits"
        return f"out of memory at batch size {size}{hint}: {where}"
    return where


def _run(group: _Group) -> Generator[int, None, None]:
    learner: Learner = (
        Session.prepare(group.trials[0]) if len(group.members) == 1 else Ensemble.prepare(group.trials)
    )
    _resume(group, learner)
    while group.running and group.epoch < learner.recipe.epochs:
        with group.watch:
            trained = learner.advance(_pause(group))
        told = trained is None or _end_epoch(group, learner, trained)
        _save(group, learner)
        if told:
            yield group.epoch
    for place, member in enumerate(group.members):
        if member.status is None:
            _complete(group, learner, place, member)


def _pause(group: _Group) -> Callable[[], bool]:
    if group.keeper is None:
        return never
    now, due = time.perf_counter, group.due  # looked up once, for steps may be short
    return lambda: now() >= due


def _end_epoch(group: _Group, learner: Learner, trained: Tensor) -> bool:
    """Take note of an epoch's end; return whether it was validated."""
    group.epoch += 1
    watch, group.watch = group.watch, Stopwatch(group.device)
    if not learner.recipe.evaluates(group.epoch):
        if group.device == "cpu":  # where looking waits for nothing
            for member, (loss, _) in zip(group.members, trained.tolist(), strict=True):
                if member.running:
                    member.note_loss(group.epoch, loss)
        return False
    rows = torch.cat([trained, learner.validate()], 1).tolist()  # the epoch's one wait for the device
    seconds, group.lap = group.elapsed - group.lap, group.elapsed
    for place, (member, row) in enumerate(zip(group.members, rows, strict=True)):
        if member.running:
            lap = Lap(
                group.epoch, row[0], row[1], learner.rate(place), seconds, watch.seconds / learner.epoch_steps
            )
            if member.note(lap, row[2:], learner.scorer) and (better := member.better()):
                member.keep(better, learner.weights(place))
    return True


def _complete(group: _Group, learner: Learner, place: int, member: Member) -> None:
    """Score the test set once, if the trial confirms, and keep the network."""
    trial = member.trial
    if trial.phase == "confirm":
        last = learner.weights(place)
        weights = (
            {name: kept.weights for name, kept in member.chosen().items()} if member.kept else {"": last}
        )
        scored = {name: learner.test(place, values).tolist() for name, values in weights.items()}
        if not all(values[0] for values in scored.values()):
            member.end("diverged", "a score on the test split is not finite")
            return
        group.test[trial.key] = pick({n: learner.scorer.named(v[1:]) for n, v in scored.items()})
        if group.keeper is not None:
            group.keeper.save_model(trial, learner.network(place, weights[""]))
    member.complete()


def _resume(group: _Group, learner: Learner) -> None:
    state = group.keeper.load(group.trials) if group.keeper is not None else None
    if state is not None:
        learner.load_state(state["learner"])
        for member, saved in zip(group.members, state["members"], strict=True):
            member.load_state(saved)
        group.epoch, group.started = state["epoch"], state["started"]
        group.clock -= state["elapsed"]
        group.watch = Stopwatch(group.device, state["step_seconds"])
        restore_process(state["process"])
    group.saved = group.elapsed
    group.lap = group.saved - (state["since_lap"] if state is not None else 0.0)


def _save(group: _Group, learner: Learner) -> None:
    ended = not group.running or group.epoch == learner.recipe.epochs
    if group.keeper is None or ended or time.perf_counter() < group.due:
        return
    elapsed = group.elapsed
    state = {
        "epoch": group.epoch,
        "started": group.started,
        "elapsed": elapsed,
        "since_lap": elapsed - group.lap,
        "step_seconds": group.watch.seconds,
        "process": process_state(group.device),
        "members": [member.state() for member in group.members],
        "learner": learner.state(),
    }
    group.keeper.save(group.trials, learner.step, state)
    group.saved = group.elapsed
