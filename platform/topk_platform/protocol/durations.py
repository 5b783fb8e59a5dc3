"""How long the trainings of each arm take, for the order of arms, the limits of a run and the time that is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["Durations"]


class _Mean(NamedTuple):
    number: int = 0
    total: float = 0.0

    def including(self, value: float) -> _Mean:
        return _Mean(self.number + 1, self.total + value)

    @property
    def value(self) -> float:
        return self.total / self.number


class Durations:
    """The expected seconds of a training of each arm: of one trial, or of one ensemble.

    The expected time is the mean over the arm's ended trainings. Before the first has ended, it is the arm's guess.
    Without a guess, it is the mean over the ended trainings of all arms, or else the mean over all guesses. Other
    threads may read it at any time, so means and guesses are replaced as a whole.

    Args:
        ended: The seconds of ended trainings, by arm identity.

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
        self._ended: dict[str, _Mean] = {}
        self._all, self._guessed = _Mean(), dict[str, float]()
        for arm_id, times in (ended or {}).items():
            for seconds in times:
                self.add(arm_id, seconds)

    def add(self, arm_id: str, seconds: float) -> None:
        """Note how long an ended training took."""
        self._ended[arm_id] = self._ended.get(arm_id, _Mean()).including(seconds)
        self._all = self._all.including(seconds)

    def guess(self, seconds: Mapping[str, float]) -> None:
        """Note guesses of the seconds that a training of some arms takes, by arm identity."""
        self._guessed = {**self._guessed, **seconds}

    def knows(self, arm_id: str) -> bool:
        """Return whether a training of the arm has ended."""
        return arm_id in self._ended

    def of(self, arm_id: str, unknown: float = 0.0) -> float:
        """Return the expected seconds of a training of an arm; ``unknown`` if no arm has a time or a guess."""
        if arm_id in self._ended:
            return self._ended[arm_id].value
        if arm_id in (guessed := self._guessed):
            return guessed[arm_id]
        if self._all.number:
            return self._all.value
        return sum(guessed.values()) / len(guessed) if guessed else unknown
