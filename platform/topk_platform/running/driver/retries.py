"""Retries of trials after faults, and the work that stays undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from topk_platform.records import OpenTrial

__all__ = ["PAUSES", "Faults", "OpenTrial", "Retries"]

PAUSES = (1.0, 4.0, 16.0, 64.0, 256.0)
"""Seconds before each further try."""


@dataclass
class Faults:
    """The work that the faults of a run left undone.

    Args:
        open: The trials left without a result after all retries.
        unsaved: Why the networks of some trials could not be kept, by the trials' keys; their results are kept.
        ended: Why the run ended before all trials had been tried; empty if it did not.
    """

    open: list[OpenTrial] = field(default_factory=list)
    unsaved: dict[str, str] = field(default_factory=dict)
    ended: str = ""


class Retries:
    """Counts faults by trial, starting again whenever the trial made progress between two faults.

    So with the default pauses a trial is given up only if six tries do not get it past the same checkpoint. A trial
    that takes days still ends on machines that are taken away every hour.

    Args:
        pauses: Seconds before each further try.

    Example:
        >>> retries = Retries((1.0, 4.0))
        >>> retries.pause("key"), retries.pause("key"), retries.pause("key")
        (1.0, 4.0, None)
        >>> retries.progress("key", 100)
        >>> retries.pause("key")
        1.0
    """

    def __init__(self, pauses: Sequence[float] = PAUSES) -> None:
        self._pauses = tuple(pauses)
        self._faults: Counter[str] = Counter()
        self._furthest: dict[str, int] = {}

    def progress(self, key: str, step: int) -> None:
        """Note the step of a trial's last checkpoint."""
        if step > self._furthest.get(key, 0):
            self._furthest[key] = step
            self._faults.pop(key, None)

    def pause(self, key: str) -> float | None:
        """Note a fault; return the seconds before the next try, or None if there is no further try."""
        self._faults[key] += 1
        count = self._faults[key]
        return self._pauses[count - 1] if count <= len(self._pauses) else None

    def forget(self, key: str) -> None:
        """Forget a trial that has ended."""
        self._faults.pop(key, None)
        self._furthest.pop(key, None)
