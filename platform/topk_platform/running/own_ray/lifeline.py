"""Watching the processes without which a Ray of our own is nothing, so that a run whose Ray is gone ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Self

import psutil

from topk_platform.running.own_ray.processes import end, has_ended, started_with

__all__ = ["GONE_CODE", "Lifeline", "LostRayError"]

GONE_CODE = 3
"""The exit code of a run that cannot end in good order because its Ray is gone: ``topk``'s for faults of machines."""

_LOOK_SECONDS = 0.25
_END_SECONDS = 9.0  # Ray ends its driver, with words of its own, some seconds later


class LostRayError(BaseException):
    """A Ray of our own is gone. It is no ``Exception``, because after one Tune would ask this Ray to clean up."""


class Lifeline:
    """Says whether a Ray of our own is still there. Of a Ray that somebody else started it has nothing to say.

    Without its raylet Ray trains nothing more, and waits for another node. Without its GCS any call of Ray may wait for
    ever, and after some seconds Ray ends this process. A thread looks at both; when one is gone, it ends the other
    processes of this Ray. The run's thread is to call :meth:`check`. If it does not, because it waits for Ray, or if it
    cannot end in time, the process ends here: what has ended by then is in the ledger or is trained again.

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
            if not self.headless:  # else there are seconds left
                self._noticed.set()
            # What its frames hold of Ray must not be collected, which would be calls of Ray.
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
