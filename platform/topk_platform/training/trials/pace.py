"""How long a trial's epochs take, and how long is too long: a matter of faults, never of results."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable

from topk_platform.errors import StalledError, TimeLimitError

__all__ = ["FIRST_SECONDS", "Pace"]

_TIMES = 20  # as long as usual
_FLOOR_SECONDS = 60.0
_COMPARED = 20  # the last epochs, of which the median is what is usual
FIRST_SECONDS = 3600.0
"""What may take so long: an epoch that compiles, reads data for the first time, or has none to be compared with."""


class Pace:
    """Watches the time of one trial, or of an ensemble, in one process.

    Args:
        limit: The seconds that a trial may train in all.
        clock: In seconds; one that is never set back.

    Example:
        >>> now = iter((0.0, 30.0, 31.0, 400.0))
        >>> pace = Pace(clock=lambda: next(now))
        >>> pace.patience
        3600.0
        >>> pace.end_epoch()  # after 30 s
        >>> pace.patience
        600.0
        >>> pace.check(epoch=2, spent=31.0)
    """

    def __init__(self, limit: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._seconds: deque[float] = deque(maxlen=_COMPARED)
        self._began = clock()

    def end_epoch(self) -> None:
        """Take note of an epoch's end."""
        now = self._clock()
        self._seconds.append(now - self._began)
        self._began = now

    @property
    def patience(self) -> float:
        """Seconds that an epoch, or anything else between two signs of life, may take."""
        if not self._seconds:
            return FIRST_SECONDS
        return max(_FLOOR_SECONDS, _TIMES * statistics.median(self._seconds))

    def check(self, epoch: int, spent: float) -> None:
        """Raise a fault where an epoch takes too long, or the whole trial.

        Args:
            epoch: The one under way.
            spent: Seconds that the trial has trained, in earlier processes as well.

        Raises:
            StalledError: if the epoch takes many times as long as earlier ones in this process did.
            TimeLimitError: if the trial has trained for longer than it may.
        """
        if spent > self._limit:
            raise TimeLimitError(
                f"it has trained for {spent / 3600:.3g} h, time_limit is {self._limit / 3600:.3g} h"
            )
        if self._seconds and (taken := self._clock() - self._began) > self.patience:
            usual = statistics.median(self._seconds)
            raise StalledError(f"epoch {epoch} has taken {taken:.0f} s, the earlier ones {usual:.3g} s each")
