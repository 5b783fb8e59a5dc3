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
    ignored stays ignored, also by processes that are started meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield
        return
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
