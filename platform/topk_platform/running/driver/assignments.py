"""The work of the workers: the orders for all trials, and the trials of each worker."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topk_platform.errors import FaultError
from topk_platform.specs import Trial
from topk_platform.training.trials.pace import FIRST_SECONDS

__all__ = ["Assignment", "Orders"]


@dataclass(frozen=True)
class Orders:
    """The settings that every trial of a run gets besides its specification.

    Args:
        store: The URI of the study's folder.
        checkpoint_seconds: The least number of seconds between two checkpoints of a trial.
        time_limit: Seconds that a trial may train in all.
        report_seconds: Seconds between two progress messages of a trial.
        share: The part of a GPU that a trial takes.
    """

    store: str
    checkpoint_seconds: float
    time_limit: float = math.inf
    report_seconds: float = 2.0
    share: float = 1.0


@dataclass
class Assignment:
    """Trials that train together in a process of their own, and the state of that process.

    Args:
        trials: The trials.
        watched: Whether the process has started, so that silence counts.
        last_message: When its last message came, by the conductor's clock.
        patience: Seconds within which the next message comes, unless the process hangs.
        stalled: The fault, if the process was silent for too long; else None.
        cut: Whether the process is being ended because the time is used up.
    """

    trials: tuple[Trial, ...]
    watched: bool = False
    last_message: float = 0.0
    patience: float = FIRST_SECONDS
    stalled: FaultError | None = None
    cut: bool = False

    @property
    def key(self) -> str:
        """The key of the first trial."""
        return self.trials[0].key
