"""Processes of this machine, such as those of a Ray."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

import psutil

__all__ = ["descendants", "end", "has_ended", "started_with"]

_END_SECONDS = 5.0


def started_with(path: str) -> Iterator[psutil.Process]:
    """Yield the other processes whose command lines contain a path."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # another user's, or it has ended meanwhile
            if process.pid != os.getpid() and any(path in word for word in process.cmdline()):
                yield process


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return the processes that a process has started, and those that these have started."""
    with suppress(psutil.Error):  # it has ended meanwhile
        return list(process.children(recursive=True))
    return []


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent has not asked for its exit code yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE or not process.is_running()
    except psutil.NoSuchProcess:
        return True


def end(processes: Iterable[psutil.Process]) -> None:
    """Kill processes and wait for their end."""
    killed = list(processes)
    for process in killed:
        with suppress(psutil.Error):  # it has ended meanwhile
            process.kill()
    psutil.wait_procs(killed, timeout=_END_SECONDS)
