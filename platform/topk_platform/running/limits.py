"""The limits of a run: no trial starts that would probably end beyond them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from topk_platform.protocol import Durations, StudyProgress
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import Trial, TrialRecord

__all__ = ["Limits", "Running"]

_HOUR = 3600.0
_LIMITS = ("max_hours", "max_gpu_hours", "max_trials")


@dataclass
class Running:
    """Trials that Tune has: one, or those of an ensemble.

    Args:
        trials: The trials.
        heard: When they were handed out, or their process last started or sent a message.
        patience: The seconds after which the process ends itself, if it is silent.
        began: When their process started, from when on it takes a GPU; infinity until then.
        kept: The step of their last checkpoint.
    """

    trials: tuple[Trial, ...]
    heard: float
    patience: float
    began: float = math.inf
    kept: int = 0


class Limits:
    """The limits of a run, and what of them is used up.

    If nothing is known about how long trials take, a trial may start.

    Args:
        options: The options of the run, whose limits count from now: ``max_hours`` from the run's start to its end,
            ``max_gpu_hours`` over all GPUs, and ``max_trials`` that may start.
        gpus: The part of a GPU that a trial takes; a trial on a quarter of a GPU uses a quarter of its time.
        clock: A monotonic clock, in seconds.

    Attributes:
        durations: How long trials take, kept up to date as they end.
        running: The trainings that run, by Tune's name.
        tried: How many trials have ended in this run, or stay open after all tries.

    Example:
        >>> now = [0.0]
        >>> limits = Limits(RunOptions(max_hours=1), clock=lambda: now[0])
        >>> limits.durations.guess({"arm": 1800.0})
        >>> limits.against("arm", 1)
        []
        >>> now[0] = 2000.0
        >>> limits.against("arm", 1), limits.reached
        (['max_hours 1'], [])
    """

    def __init__(
        self,
        options: RunOptions | None = None,
        gpus: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = {name: getattr(options or RunOptions(), name) for name in _LIMITS}
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        self.gpus, self.clock = gpus, clock
        self.durations = Durations()
        self.running: dict[str, Running] = {}
        self.tried = 0
        self._began, self._gpu_seconds = clock(), 0.0

    def against(self, arm_id: str, trials: int) -> list[str]:
        """Return the limits, in words, that keep this many trials of an arm, training together, from starting now."""
        if not self._limits:
            return []
        seconds = self.durations.of(arm_id)
        under_way = self.running.values()
        reserved = sum(max(self._lasted(run), self.durations.of(run.trials[0].arm_id)) for run in under_way)
        return self._exceeded(
            max_hours=(self.clock() - self._began + seconds) / _HOUR,
            max_gpu_hours=(self._gpu_seconds + self.gpus * (reserved + seconds)) / _HOUR,
            max_trials=self.tried + sum(len(run.trials) for run in under_way) + trials,
        )

    @property
    def reached(self) -> list[str]:
        """The limits of time that are used up, in words: running trials are then cut off, and continue later."""
        if not self._limits:
            return []
        spent = self._gpu_seconds + self.gpus * sum(map(self._lasted, self.running.values()))
        return self._exceeded(max_hours=(self.clock() - self._began) / _HOUR, max_gpu_hours=spent / _HOUR)

    def _exceeded(self, **spent: float) -> list[str]:
        return [f"{name} {limit:g}" for name, limit in self._limits.items() if spent.get(name, 0) > limit]

    def _lasted(self, run: Running) -> float:
        return max(0.0, self.clock() - run.began)

    def guess_unknown(self, progress: StudyProgress) -> None:
        """If time is limited, estimate the time of arms without an ended trial from a few steps, as a plan does."""
        unknown = [arm for i, arm in progress.arms.items() if arm.left and not self.durations.knows(i)]
        if unknown and self._limits.keys() & {"max_hours", "max_gpu_hours"}:
            from topk_platform.running.preflight.timing import trial_seconds  # noqa: PLC0415 - imports torch

            self.durations.guess(trial_seconds(unknown))

    def note_record(self, record: TrialRecord) -> None:
        """Note how long an ended trial took, unless it broke off."""
        if record.status in ("completed", "pruned"):
            self.durations.add(record.trial.arm_id, record.train_seconds)

    def note_stop(self, run: Running) -> None:
        """Note that the process of a training has stopped."""
        self._gpu_seconds += self.gpus * self._lasted(run)
        run.began = math.inf
