"""The time that workers wait for their start although the cluster has room for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Starts"]

_LOOKS = 8  # how often the room is checked within the limit


@dataclass
class _Wait:
    since: float
    counted: float = 0.0


@dataclass
class Starts:
    """Counts the time for which each worker has waited for its start while nothing kept it from starting.

    Args:
        limit: Seconds that a worker may wait in this way.
        room: Called with the number of waiting workers; returns how many of them could have started, or None while
            this is not known. Workers start in the order in which they were requested, so these are the first ones.

    Example:
        >>> starts = Starts(limit=800, room=lambda waiting: 1)
        >>> starts.add("a", now=0); starts.add("b", now=0)
        >>> [starts.overdue(now) for now in (100, 400, 800)]
        [[], [], ['a']]
    """

    limit: float = math.inf
    room: Callable[[int], int | None] = lambda waiting: waiting
    _waits: dict[str, _Wait] = field(default_factory=dict)
    _looked: float = 0.0

    def add(self, worker: str, now: float) -> None:
        """Note that a worker was requested."""
        if not self._waits:
            self._looked = now
        self._waits[worker] = _Wait(now)

    def remove(self, worker: str) -> None:
        """Note that a worker has started, or is no longer needed."""
        self._waits.pop(worker, None)

    def overdue(self, now: float) -> list[str]:
        """Return the workers that have waited for too long."""
        if not self._waits or now - self._looked < self.limit / _LOOKS:
            return []
        count = self.room(len(self._waits))
        if count is None:
            return []
        for wait in list(self._waits.values())[:count]:
            wait.counted += now - max(wait.since, self._looked)
        self._looked = now
        return [worker for worker, wait in self._waits.items() if wait.counted >= self.limit]
