"""The time that a trial's epochs take. An epoch that takes too long is a fault and never a result."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable

from topk_platform.errors import StalledError, TimeLimitError

__all__ = ["FIRST_SECONDS", "Pace"]

_FACTOR = 20  # an epoch is too long if it takes this many times the usual time
_LEAST_SECONDS = 60.0
_LAST_EPOCHS = 20  # the usual time is the median of this many last epochs
FIRST_SECONDS = 3600.0
"""The seconds that may pass before there is a usual time, because the first epoch compiles and reads data."""


class Pace:
    """A watch on the time of one trial, or of an ensemble, in one process.

    Args:
        limit: The seconds that a trial may train in all.
        clock: A function that returns seconds, which never decrease.

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
        self._seconds: deque[float] = deque(maxlen=_LAST_EPOCHS)
        self._began = clock()

    def end_epoch(self) -> None:
        """Record an epoch's end."""
        now = self._clock()
        self._seconds.append(now - self._began)
        self._began = now

    @property
    def patience(self) -> float:
        """The seconds that may pass between two heartbeats."""
        if not self._seconds:
            return FIRST_SECONDS
        return max(_LEAST_SECONDS, _FACTOR * statistics.median(self._seconds))

    def check(self, epoch: int, spent: float) -> None:
        """Raise a fault if an epoch or the whole trial takes too long.

        Args:
            epoch: The current epoch.
            spent: The seconds that the trial has trained, in earlier processes as well.

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
