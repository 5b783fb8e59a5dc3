"""Ctrl-C, SIGTERM and SIGHUP, held back while something must not be cut off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interrupts_wait"]


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Let a Ctrl-C, SIGTERM or SIGHUP wait until the block has ended.

    A Ray that is cut off while it starts crashes or stays behind. An import that is cut off may leave Python's import
    lock taken, so that another thread's next import waits for ever, or may swallow the interrupt.

    What SIGTERM does is the caller's again at the end; Ray would have it exit, wherever the caller is. A signal that is
    ignored stays so, for processes that are started as well.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
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
