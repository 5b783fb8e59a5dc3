"""Watching the processes that a Ray of our own needs, so that a run ends when its Ray is gone."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Self

import psutil

from topk_platform.running.own_ray.processes import end, has_ended, started_with

__all__ = ["GONE_CODE", "Lifeline", "LostRayError"]

GONE_CODE = 3
"""The exit code of a run that must end at once because its Ray is gone: that of faults of machines."""

_LOOK_SECONDS = 0.25
_END_SECONDS = 9.0  # Ray itself ends its driver some seconds later, with a less helpful message


class LostRayError(BaseException):
    """A Ray of our own is gone. This is not an ``Exception``, because Tune would then ask this Ray to clean up."""


class Lifeline:
    """Checks whether a Ray of our own still runs. A Ray that was started elsewhere is assumed to run.

    Without its raylet Ray trains nothing and waits for another node. Without its GCS any call of Ray may wait forever,
    and after some seconds Ray ends this process. A thread watches both. When one is gone, it ends the other processes
    of this Ray, and the next call of :meth:`check` in the run's thread raises an error. If that call does not come in
    time, because the run's thread waits for Ray, the thread ends this process. Trials that have ended by then are in
    the ledger; the others are trained again.

    Args:
        processes: The raylet and the GCS, by these names.
        folder: The folder of this Ray, which its processes have in their command lines.

    Attributes:
        headless: Whether the GCS is gone, so that no call of Ray returns.
    """

    def __init__(self, processes: Mapping[str, psutil.Process] | None = None, folder: str = "") -> None:
        self._processes, self._folder = dict(processes or {}), folder
        self._lost, self._noticed, self._over = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lifeline", daemon=True)
        self._why = ""
        self._kept: LostRayError | None = None
        self.headless = False

    def __enter__(self) -> Self:
        if self._processes:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._noticed.set()

    def check(self) -> None:
        """Raise ``LostRayError`` if this Ray is gone."""
        if self._lost.is_set():
            if not self.headless:  # without the GCS only seconds are left
                self._noticed.set()
            # Kept, because deleting the objects of Ray in its frames would call Ray.
            self._kept = LostRayError(self._why)
            raise self._kept

    def sleep(self, seconds: float) -> None:
        """Sleep, and raise ``LostRayError`` as soon as this Ray is gone."""
        self._lost.wait(seconds)
        self.check()

    def __getstate__(self) -> dict[str, object]:
        return {}  # Tune pickles it for a restore that never happens

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            gone = [name for name, process in self._processes.items() if has_ended(process)]
            if gone and not self._over.is_set():
                self._lose(gone)
                return

    def _lose(self, gone: list[str]) -> None:
        self.headless = "GCS" in gone
        named = " and ".join(f"{name} (process {self._processes[name].pid})" for name in gone)
        self._why = f"Ray's {named} on this machine has ended: killed, or out of memory"
        self._lost.set()
        known = {process.pid for process in self._processes.values()}
        end(process for process in started_with(self._folder) if process.pid not in known)
        if not self._noticed.wait(_END_SECONDS):
            os.write(2, f"topk: {self._why}; the same command goes on from here\n".encode())
            os._exit(GONE_CODE)
