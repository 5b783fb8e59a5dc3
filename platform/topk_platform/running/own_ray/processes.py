"""Processes of this machine, such as those of a Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import psutil

__all__ = ["end", "started_with"]

_END_SECONDS = 5.0


def started_with(path: str) -> Iterator[psutil.Process]:
    """Yield the other processes whose command lines contain a path."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # another user's, or it has ended meanwhile
            if process.pid != os.getpid() and any(path in word for word in process.cmdline()):
                yield process


def end(path: str) -> None:
    """Kill the processes whose command lines contain a path, with all that they have started; wait for their end."""
    processes = list(started_with(path))
    for process in tuple(processes):
        with suppress(psutil.Error):  # it has ended meanwhile
            processes += process.children(recursive=True)
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_END_SECONDS)
