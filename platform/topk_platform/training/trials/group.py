"""The trials that train together, mostly one: how far they are, and what the outside is told of it."""

from __future__ import annotations

import math
import platform
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from topk_platform.specs import Inputs, Trial, TrialRecord
from topk_platform.training.process.environment import environment
from topk_platform.training.trials.clock import Stopwatch
from topk_platform.training.trials.member import Member
from topk_platform.training.trials.pace import FIRST_SECONDS, Pace

__all__ = ["Group", "Keeper", "Network", "Pulse", "Stored"]

_NEEDED = {"ranks", "guesses"}  # what a completed confirmation must have stored
_BEAT_SECONDS = 10.0  # steps are left so often for a sign of life


class Keeper(Protocol):
    """Where trials keep what must outlive their process."""

    @property
    def seconds(self) -> float:
        """The least time between two checkpoints."""
        ...

    @property
    def pauses(self) -> Sequence[float]:
        """Seconds between tries to keep what belongs to a confirmation, in a store that refuses."""
        ...

    def load(self, trials: Sequence[Trial]) -> dict[str, Any] | None:
        """Return the last checkpoint of these trials, or None."""
        ...

    def save(self, trials: Sequence[Trial], step: int, state: dict[str, Any]) -> None:
        """Keep the checkpoint of a step, which rises from one to the next: tensors and plain data."""
        ...

    def save_model(self, trial: Trial, model: nn.Module, inputs: Inputs) -> str:
        """Keep the network of a completed confirmation, and what it takes; return the file's SHA-256."""
        ...

    def save_ranks(
        self, trial: Trial, ranks: Tensor, images: str, cluster: Tensor | None = None, clusters: str = ""
    ) -> str:
        """Keep :attr:`~topk_platform.training.setup.Scored.ranks` of the test split, its fingerprint and groups.

        Returns the file's SHA-256.
        """
        ...

    def save_guesses(self, trial: Trial, guesses: Tensor, images: str) -> str:
        """Keep :meth:`~topk_platform.training.setup.Scored.guesses` of the test split, and its fingerprint.

        Returns the file's SHA-256.
        """
        ...


class Network(NamedTuple):
    """A network that is to be kept.

    Args:
        place: Its trial's, in the group.
        weights: Its weights and buffers.
        ranks: Of the test split, see :attr:`~topk_platform.training.setup.Scored.ranks`.
        guesses: The arm's K classes of each test sample, see :meth:`~topk_platform.training.setup.Scored.guesses`.
        images: The test split's fingerprint.
        cluster: The group of each test sample; None where the dataset names none.
        clusters: What these groups are called.
    """

    place: int
    weights: dict[str, Tensor]
    ranks: Tensor
    guesses: Tensor
    images: str
    cluster: Tensor | None = None
    clusters: str = ""


class Pulse(NamedTuple):
    """A sign of life.

    Args:
        epoch: How many epochs have ended.
        kept: The step of the last checkpoint, from which a process that follows this one would go on; 0 before any.
        patience: Seconds within which the next sign comes, unless the trial hangs.
    """

    epoch: int = 0
    kept: int = 0
    patience: float = FIRST_SECONDS


@dataclass
class Stored:
    """What was stored of a completed confirmation.

    Args:
        artifacts: The SHA-256 of each of its files, by kind.
        missing: Why a file could not be stored, by kind.
    """

    artifacts: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass
class Group:
    """The trials that train together, mostly one."""

    members: list[Member]
    keeper: Keeper | None
    watch: Stopwatch
    pace: Pace = field(default_factory=Pace)
    epoch: int = 0  # those that have ended
    kept: int = 0  # the step of the last checkpoint
    test: dict[str, dict[str, float]] = field(default_factory=dict)
    networks: list[Network] = field(default_factory=list)
    stored: defaultdict[str, Stored] = field(default_factory=lambda: defaultdict(Stored))  # by key
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)
    lap: float = 0.0
    saved: float = 0.0

    @property
    def trials(self) -> list[Trial]:
        """The trials."""
        return [member.trial for member in self.members]

    @property
    def running(self) -> list[Member]:
        """Those that train on."""
        return [member for member in self.members if member.running]

    @property
    def device(self) -> str:
        """Where they train."""
        return self.trials[0].device

    @property
    def elapsed(self) -> float:
        """Seconds that they have trained, in earlier processes too."""
        return time.perf_counter() - self.clock

    @property
    def due(self) -> float:
        """When the next checkpoint is, by the clock that ``time.perf_counter`` reads."""
        return math.inf if self.keeper is None else self.clock + self.saved + self.keeper.seconds

    @property
    def records(self) -> list[TrialRecord]:
        """What came of the trials."""
        return [*map(self.record, self.members)]

    def pulse(self, patience: float | None = None) -> Pulse:
        """Return a sign of life.

        Args:
            patience: Seconds until the next; by default what an epoch may take.
        """
        return Pulse(self.epoch, self.kept, self.pace.patience if patience is None else patience)

    @property
    def pause(self) -> float:
        """When the steps are left next, by the same clock: for a checkpoint, or for a sign of life."""
        return min(self.due, time.perf_counter() + _BEAT_SECONDS)

    def fail(self, reason: str) -> None:
        """End all that have not ended, or of which something is not stored: their code is one."""
        for place, member in enumerate(self.members):
            if member.status is None or self._is_unkept(place):
                member.end("failed", reason)

    def _is_unkept(self, place: int) -> bool:
        stored = self.stored[self.trials[place].key].artifacts
        return any(network.place == place and not stored.keys() >= _NEEDED for network in self.networks)

    def record(self, member: Member) -> TrialRecord:
        """Return what came of one of them."""
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
            artifacts=self.stored[trial.key].artifacts,
            missing=self.stored[trial.key].missing,
        )


def _versions(device: str) -> dict[str, str]:
    there = (
        device == "cpu" or torch.cuda.is_available()
    )  # a trial that failed for want of a GPU has a record too
    return {"python": platform.python_version(), **(environment(device) if there else {})}
