"""Holding back Ctrl-C, SIGTERM and SIGHUP while something must not be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interrupts_wait"]


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Let a Ctrl-C, SIGTERM or SIGHUP wait until the block has ended.

    If a starting Ray is interrupted, it crashes or its processes stay. If an import is interrupted, it may keep
    Python's import lock, so that another thread's next import waits forever, or it may swallow the interrupt.

    At the end the caller's handlers are set again, because Ray replaces that of SIGTERM by an exit. A signal that is
    ignored stays ignored, also by processes that are started meanwhile. These also never hear SIGTERM and SIGHUP, which
    others send to all processes of a run: SLURM sends SIGTERM, and a terminal that is closed SIGHUP. The driver ends
    them in its own time; without them it would wait a minute for an answer.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    came: list[int] = []
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        numbers = set()
    handlers = {number: signal.getsignal(number) for number in numbers}
    for number in (number for number, handler in handlers.items() if handler != signal.SIG_IGN):
        signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if came:
        signal.raise_signal(came[0])
