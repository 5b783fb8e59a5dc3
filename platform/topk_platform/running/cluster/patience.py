"""Waiting for a cluster that is starting: for its head, and for a node on which a trial fits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from topk_platform.errors import ClusterError, UserError

__all__ = ["COMING_SECONDS", "NotYetError", "Patience"]

T = TypeVar("T")

COMING_SECONDS = 60.0
"""How long to wait for a head or a node by default, in seconds."""

_PAUSE = 1.0


class NotYetError(ClusterError):
    """Something that the cluster lacks now and may still get."""


class Patience:
    """How long to wait for a cluster that is starting.

    Args:
        seconds: The longest wait for each answer or node; None for the defaults of :meth:`until`.
        report: Called with a line for each new reason to wait, and with the lines of :meth:`say`.
        clock: A monotonic clock, in seconds.
        sleep: Sleeps for a number of seconds.

    Attributes:
        seconds: The longest wait that the user gave; None if the user gave none.
        clock: The clock.

    Raises:
        UserError: for a time below 0.

    Example:
        >>> patience, answers = Patience(report=print, sleep=lambda seconds: None), [NotYetError("no head"), 8]
        >>> def ask():
        ...     if isinstance(answer := answers.pop(0), Exception):
        ...         raise answer
        ...     return answer
        >>> patience.until(ask)
        no head; waiting for up to 60 s, see --wait
        8
    """

    def __init__(
        self,
        seconds: float | None = None,
        report: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if seconds is not None and not seconds >= 0:
            raise UserError(f"wait must be at least 0 seconds, got {seconds}")
        self.seconds, self._report, self.clock, self._sleep = seconds, report, clock, sleep

    def until(self, ask: Callable[[], T], otherwise: float = COMING_SECONDS) -> T:
        """Return what ``ask`` returns as soon as it raises no ``NotYetError``.

        Args:
            ask: Called once a second.
            otherwise: The longest wait in seconds if the user gave none.

        Raises:
            ClusterError: in one line, once the time has passed; other errors of ``ask`` at once.
        """
        seconds = otherwise if self.seconds is None else self.seconds
        end, last = self.clock() + seconds, ""
        while True:
            try:
                return ask()
            except NotYetError as error:
                if self.clock() >= end:
                    raise ClusterError(f"{error}{_waited(seconds)}") from error
                if str(error) != last:
                    last = str(error)
                    self.say(f"{last}; waiting for up to {seconds:g} s, see --wait")
            self._sleep(_PAUSE)

    def say(self, line: str) -> None:
        """Report a line about the preparation of a run."""
        if self._report is not None:
            self._report(line)


def _waited(seconds: float) -> str:
    return f" (waited {seconds:g} s; longer with --wait)" if seconds else ""
