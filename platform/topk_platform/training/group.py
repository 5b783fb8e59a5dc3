"""The trials that train together, usually one: their progress, and the heartbeats that report it."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from topk_platform.specs import EpochRecord, Inputs, Trial, TrialRecord
from topk_platform.training.faults import FIRST_SECONDS, Pace
from topk_platform.training.member import Member
from topk_platform.training.process import environment

__all__ = ["Group", "Heartbeat", "Keeper", "Stopwatch"]

_REQUIRED_FILES = {"ranks", "guesses"}  # the files that a completed confirmation must have
_HEARTBEAT_SECONDS = 10.0  # the longest time between two heartbeats while steps are made


class Keeper(Protocol):
    """Stores the checkpoints and files that must outlive the process of the trials."""

    @property
    def seconds(self) -> float:
        """The least number of seconds between two checkpoints."""
        ...

    @property
    def pauses(self) -> Sequence[float]:
        """The seconds to wait before each new attempt to store a confirmation's files, if the store refuses."""
        ...

    def load(self, trials: Sequence[Trial]) -> dict[str, Any] | None:
        """Return the last checkpoint of these trials, or None."""
        ...

    def save(self, trials: Sequence[Trial], step: int, state: dict[str, Any]) -> None:
        """Store a checkpoint, which is tensors and plain data. Its step is larger than that of the last checkpoint."""
        ...

    def save_model(self, trial: Trial, model: nn.Module, inputs: Inputs) -> str:
        """Store a completed confirmation's network and the description of its inputs; return the file's SHA-256."""
        ...

    def save_ranks(
        self, trial: Trial, ranks: Tensor, images: str, cluster: Tensor | None = None, clusters: str = ""
    ) -> str:
        """Store :attr:`~topk_platform.training.scoring.Scored.ranks` of the test split, its fingerprint and groups.

        Returns:
            The file's SHA-256.
        """
        ...

    def save_guesses(self, trial: Trial, guesses: Tensor, images: str) -> str:
        """Store :meth:`~topk_platform.training.scoring.Scored.guesses` of the test split, and its fingerprint.

        Returns:
            The file's SHA-256.
        """
        ...


class Heartbeat(NamedTuple):
    """A message that the trials are alive, with their progress.

    Args:
        epoch: How many epochs have ended.
        kept: The step of the last checkpoint, from which another process would continue; 0 before the first one.
        patience: The seconds within which the next heartbeat comes, unless the trial hangs.
        last: The last validated epoch, of an ensemble that of its first trial; None before it.
    """

    epoch: int = 0
    kept: int = 0
    patience: float = FIRST_SECONDS
    last: EpochRecord | None = None


@dataclass
class Group:
    """The trials that train together, usually one."""

    members: list[Member]
    keeper: Keeper | None
    watch: Stopwatch
    pace: Pace = field(default_factory=Pace)
    epoch: int = 0  # how many have ended
    kept: int = 0  # the step of the last checkpoint
    measures: Mapping[str, str] = field(default_factory=dict)  # the user's own, with their code's versions
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)
    validated: float = 0.0
    saved: float = 0.0

    @property
    def trials(self) -> list[Trial]:
        """The trials."""
        return [member.trial for member in self.members]

    @property
    def running(self) -> list[Member]:
        """The members that still train."""
        return [member for member in self.members if member.running]

    @property
    def device(self) -> str:
        """The device on which the trials train."""
        return self.trials[0].device

    @property
    def elapsed(self) -> float:
        """The seconds that the trials have trained, including earlier processes."""
        return time.perf_counter() - self.clock

    @property
    def due(self) -> float:
        """The time of ``time.perf_counter`` at which the next checkpoint is due."""
        return math.inf if self.keeper is None else self.clock + self.saved + self.keeper.seconds

    def heartbeat(self, patience: float | None = None) -> Heartbeat:
        """Return a heartbeat.

        Args:
            patience: The seconds until the next one; by default the time that an epoch may take.
        """
        first = self.members[0]
        limit = self.pace.patience if patience is None else patience
        return Heartbeat(self.epoch, self.kept, limit, first.epochs[-1] if first.epochs else None)

    def pause(self) -> Callable[[], bool]:
        """Return a function that says after a step whether training pauses, for a checkpoint or a heartbeat."""
        now = time.perf_counter  # looked up once, because steps may be short
        due = min(self.due, now() + _HEARTBEAT_SECONDS)
        return lambda: now() >= due

    def fail(self, reason: str) -> None:
        """End all members that have not ended or lack a file, because one error concerns them all."""
        for member in self.members:
            lacks_files = member.network is not None and not member.artifacts.keys() >= _REQUIRED_FILES
            if member.status is None or lacks_files:
                member.end("failed", reason)

    def record(self, member: Member) -> TrialRecord:
        """Return the record of one member."""
        trial = member.trial
        # A trial that failed because there was no GPU has a record, too.
        there = trial.device == "cpu" or torch.cuda.is_available()
        return TrialRecord(
            trial=trial,
            status=member.status or "failed",
            reason=member.reason,
            validation=member.validation(),
            test=member.test,
            epochs=tuple(member.epochs),
            train_seconds=sum(epoch.seconds for epoch in member.epochs),
            started=self.started,
            ended=self.started + self.elapsed,
            versions={"python": platform.python_version(), **(environment(trial.device) if there else {})},
            artifacts=member.artifacts,
            missing=member.missing,
            own=member.own,
        )


class Stopwatch:
    """A context that measures the time spent in it, summed over all uses.

    Args:
        device: ``"cpu"`` or ``"cuda"``. On CUDA, events on the stream are timed and read afterwards.
        seconds: The time measured before.
    """

    def __init__(self, device: str, seconds: float = 0.0) -> None:
        self._on_gpu = device == "cuda"
        self._seconds = seconds
        self._start = 0.0
        self._pairs: list[list[torch.cuda.Event]] = []

    def __enter__(self) -> Stopwatch:
        if self._on_gpu:
            self._pairs.append([torch.cuda.Event(enable_timing=True) for _ in range(2)])  # type: ignore[no-untyped-call]
            self._pairs[-1][0].record()
        else:
            self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on_gpu:
            self._pairs[-1][1].record()
        else:
            self._seconds += time.perf_counter() - self._start

    @property
    def seconds(self) -> float:
        """The time. On a GPU, this waits until the device has done all work of the context."""
        for start, end in self._pairs:
            end.synchronize()
            self._seconds += float(start.elapsed_time(end)) / 1e3
        self._pairs.clear()
        return self._seconds
