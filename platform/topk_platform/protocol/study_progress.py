"""The state of a study: which trials have ended and which may start now. It uses no clock, worker or file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from topk_platform.protocol.arm_progress import ArmProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.specs import Arm, Phase, Status, Trial
from topk_platform.specs.fields import Whole

__all__ = ["Counts", "Durations", "Pace", "StudyProgress", "Tally", "urgency"]

Pace = Callable[[str], float]
"""The expected seconds of an arm's training (or its ensemble's), by its ID."""

MayStart = Callable[[str, int], bool]
"""Returns whether a number of trials of an arm, given by its ID, may start together now."""


def urgency(arm: ArmProgress, pace: Pace) -> tuple[float, float]:
    """Return the time of an arm's longest chain of trainings, and of all its work. The largest pair goes first.

    An arm's search trials wait for one another, and its confirmations wait for all of them. More workers do not make
    that chain shorter, so a free worker goes to the arm with the longest one; among equals, to the arm with the most
    work left. No result depends on the order.
    """
    seconds, (searches, confirmations, left) = pace(arm.arm_id), arm.ahead
    return seconds * (searches + confirmations), seconds * left


class StudyProgress:
    """All arms of a study.

    Args:
        arms: The progress of each arm.

    Attributes:
        retries: How often a trial was tried again after a fault.
    """

    def __init__(self, arms: Iterable[ArmProgress]) -> None:
        self.arms = {arm.arm_id: arm for arm in arms}
        self.retries = 0

    def next_trials(
        self, may_start: MayStart = lambda _arm_id, _trials: True, pace: Pace = lambda _arm_id: 1.0
    ) -> tuple[Trial, ...]:
        """Return the next trial, or all of the next ensemble, and mark them as running; none while nothing can start.

        Args:
            may_start: Returns whether a number of trials of an arm, given by its ID, may start together.
            pace: Returns the expected seconds of an arm's trainings. The order of arms depends on it, see
                :func:`urgency`.
        """
        candidates = (
            (arm, slot)
            for arm in self.arms.values()
            if (slot := arm.next_slot()) is not None and may_start(arm.arm_id, arm.arm.protocol.ensemble)
        )
        first = max(candidates, key=lambda pair: urgency(pair[0], pace), default=None)
        if first is None:
            return ()
        arm, slot = first
        block = arm.block(slot)
        arm.take(block)
        return tuple(arm.trial(member) for member in block)

    def has_ended(self, trial: Trial) -> bool:
        """Return whether a trial had ended before. This happens to members of an ensemble that is trained again."""
        arm = self.arms[trial.arm_id]
        if trial.phase == "search":
            return trial.number in arm.searched
        return (trial.phase, trial.number, trial.seed) in arm.confirmed

    def end(self, trial: Trial, ended: Ended) -> None:
        """Note that a trial has ended."""
        self.arms[trial.arm_id].end((trial.phase, trial.number, trial.seed), ended)

    def release(self, trial: Trial) -> None:
        """Let a trial that was running start again."""
        self.arms[trial.arm_id].release((trial.phase, trial.number, trial.seed))

    def leave(self, trial: Trial) -> None:
        """Leave a running trial open: without a result, and not to be started again in this run."""
        self.arms[trial.arm_id].leave((trial.phase, trial.number, trial.seed))

    @property
    def stuck(self) -> bool:
        """Whether nothing runs and nothing can start, but trials are left: open ones and those that wait for them."""
        return not self.ended and not any(arm.running or arm.next_slot() for arm in self.arms.values())

    def held(self, may_start: MayStart) -> bool:
        """Return whether nothing runs, and ``may_start`` allows none of the trials that are ready to start."""
        arms = self.arms.values()
        if any(arm.running for arm in arms):
            return False
        ready = [arm for arm in arms if arm.next_slot() is not None]
        return bool(ready) and not any(may_start(arm.arm_id, arm.arm.protocol.ensemble) for arm in ready)

    @property
    def outdated(self) -> Counter[str]:
        """How many recorded trials do not count, by reason."""
        return sum((Counter(arm.outdated) for arm in self.arms.values()), Counter())

    @property
    def ended(self) -> bool:
        """Whether no trial is left."""
        return not any(arm.left for arm in self.arms.values())

    @property
    def left(self) -> int:
        """How many trials have not ended."""
        return sum(arm.left for arm in self.arms.values())

    @property
    def total(self) -> int:
        """How many trials the study asks for."""
        return sum(arm.total for arm in self.arms.values())

    def seconds(self, durations: Durations, workers: int) -> float:
        """Return the expected time until all trials have ended.

        This is the time of all trainings that are left, divided by the number of workers. If the longest chain of
        trainings that wait for one another takes longer, it is the time of that chain. Trials that are pruned
        before their last epoch shorten it.

        Args:
            durations: The expected seconds of trainings.
            workers: How many trainings may run at once.
        """
        left = [arm for arm in self.arms.values() if arm.left]
        work = sum(arm.trainings * durations.of(arm.arm_id) for arm in left)
        chains = ((sum(arm.rounds) + bool(arm.running)) * durations.of(arm.arm_id) for arm in left)
        return max([work / max(1, workers), *chains], default=0.0)


@dataclass(frozen=True)
class Tally:
    """How many runs ended with each status.

    Example:
        >>> Tally.of(["completed", "diverged", "diverged"])
        Tally(completed=1, pruned=0, diverged=2, failed=0)
    """

    completed: Whole = 0
    pruned: Whole = 0
    diverged: Whole = 0
    failed: Whole = 0

    @classmethod
    def of(cls, statuses: Iterable[str]) -> Tally:
        """Return the tally of statuses."""
        return cls(**Counter(statuses))

    @property
    def ended(self) -> int:
        """How many runs ended in all."""
        return self.completed + self.pruned + self.diverged + self.failed

    @property
    def lost(self) -> int:
        """How many ended without a result: diverged or failed."""
        return self.diverged + self.failed


class Counts:
    """The ended trials of one arm, counted.

    Args:
        arm: The arm.
        searched: Its ended search trials.
        confirmed: Its ended confirmations.

    Attributes:
        statuses: How many trials ended with each status.
        best: The completed search trial with the highest metric, the earlier one on a tie; None before the first. For
            an arm that searches nothing, the same of its confirmations.

    Example:
        >>> from topk_platform.specs import Float, Loss, Model, Recipe, Regime
        >>> loss = Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1})
        >>> arm = Arm(Regime("r", "digits"), Model("mlp"), loss, 1, Recipe(epochs=4))
        >>> counts = Counts(arm, [Ended(0, {}, "completed", {4: 0.8}), Ended(1, {}, "diverged")])
        >>> counts.add("search", Ended(2, {}, "completed", {4: 0.9})), counts.best.number
        (True, 2)
    """

    def __init__(self, arm: Arm, searched: Iterable[Ended] = (), confirmed: Iterable[Ended] = ()) -> None:
        self._shown: Phase = "search" if arm.is_searched else "confirm"
        # All keys are there from the start, because another thread may read while this one counts.
        self.statuses: Counter[str] = Counter(dict.fromkeys(get_args(Status), 0))
        self.best: Ended | None = None
        for ended in sorted(searched, key=lambda trial: trial.number):
            self.add("search", ended)
        for ended in confirmed:
            self.add("confirm", ended)

    def add(self, phase: Phase, ended: Ended) -> bool:
        """Count an ended trial; return whether it is the best so far."""
        self.statuses[ended.status] += 1
        if phase != self._shown or math.isnan(ended.objective):
            return False
        if self.best is not None and ended.objective <= self.best.objective:
            return False
        self.best = ended
        return True


class Durations:
    """The expected seconds of a training of each arm: of one trial, or of one ensemble.

    The expected time is the mean over the arm's ended trainings. Before the first has ended, it is the arm's guess.
    Without a guess, it is the mean over the ended trainings of all arms, or else the mean over all guesses. Other
    threads may read it at any time, so means and guesses are replaced as a whole.

    Args:
        ended: The seconds of ended trainings, by arm ID.

    Example:
        >>> durations = Durations({"a": [10.0, 30.0]})
        >>> durations.guess({"b": 5.0})
        >>> durations.of("a"), durations.of("b"), durations.of("c")
        (20.0, 5.0, 20.0)
        >>> durations.add("b", 7.0)
        >>> durations.of("b"), Durations().of("a"), Durations().of("a", unknown=1.0)
        (7.0, 0.0, 1.0)
    """

    def __init__(self, ended: Mapping[str, Iterable[float]] | None = None) -> None:
        self._ended: dict[str, tuple[int, float]] = {}  # how many, and their seconds in all
        self._all = 0, 0.0
        self._guessed: dict[str, float] = {}
        for arm_id, times in (ended or {}).items():
            for seconds in times:
                self.add(arm_id, seconds)

    def add(self, arm_id: str, seconds: float) -> None:
        """Note how long an ended training took."""
        count, total = self._ended.get(arm_id, (0, 0.0))
        self._ended[arm_id] = count + 1, total + seconds
        self._all = self._all[0] + 1, self._all[1] + seconds

    def guess(self, seconds: Mapping[str, float]) -> None:
        """Note guesses of the seconds that a training of some arms takes, by arm ID."""
        self._guessed = {**self._guessed, **seconds}

    def knows(self, arm_id: str) -> bool:
        """Return whether a training of the arm has ended."""
        return arm_id in self._ended

    def of(self, arm_id: str, unknown: float = 0.0) -> float:
        """Return the expected seconds of a training of an arm; ``unknown`` if no arm has a time or a guess."""
        if arm_id in self._ended:
            count, total = self._ended[arm_id]
            return total / count
        if arm_id in (guessed := self._guessed):
            return guessed[arm_id]
        count, total = self._all
        if count:
            return total / count
        return sum(guessed.values()) / len(guessed) if guessed else unknown
