"""The watch over a run's Ray, so that the run ends when its Ray is gone."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["GONE_CODE", "HEAD", "RAYLET", "Cluster", "Lifeline", "LostRayError"]

GONE_CODE = 3
"""The exit code of a run that must end at once because its Ray is gone: that of faults of machines."""

HEAD, RAYLET = "GCS", "raylet"
"""What a driver needs of Ray: the head's main process, and the main process of the node that it is on."""

_LOOK_SECONDS = 0.25
_CONNECT_SECONDS = 5.0
_END_SECONDS = 9.0  # Ray itself ends its driver some seconds later, with a less helpful message


class LostRayError(BaseException):
    """Ray is gone. This is not an ``Exception``, because Tune would then ask this Ray to clean up."""


class Lifeline:
    """Checks whether Ray still runs; a Ray that is not watched is assumed to run.

    Without its raylet a driver trains nothing and waits for ever. Without the GCS any call of Ray may wait forever, and
    after some time Ray ends this process. A thread asks whether both still listen. When one is gone, the next call of
    :meth:`check` in the run's thread raises an error. If that call does not come in time, because the run's thread
    waits for Ray, or the block does not end in time without the GCS, the thread ends this process. Trials that have
    ended by then are in the ledger; the others are trained again.

    Attributes:
        headless: Whether the head is gone, so that no call of Ray returns.
    """

    def __init__(self) -> None:
        self._lost, self._over = threading.Event(), threading.Event()
        self._error = LostRayError()  # kept, because deleting the objects of Ray in its frames would call Ray
        self.headless = False

    def watch(self, needed: Mapping[str, tuple[str, int]], patience: float = 0.0) -> None:
        """Begin to watch, until :meth:`stop` is called.

        Args:
            needed: Hosts and ports, by :data:`HEAD` and :data:`RAYLET`.
            patience: For how many seconds the head may be away.
        """
        threading.Thread(target=self._watch, args=(needed, patience), name="lifeline", daemon=True).start()

    def stop(self) -> None:
        """End the watch."""
        self._over.set()

    def check(self) -> None:
        """Raise ``LostRayError`` if this Ray is gone."""
        if self._lost.is_set():
            if not self.headless:  # without the head only seconds are left
                self._over.set()
            raise self._error

    def _watch(self, needed: Mapping[str, tuple[str, int]], patience: float) -> None:
        seen, most = dict.fromkeys(needed, time.monotonic()), {HEAD: patience, RAYLET: 0.0}
        gone: list[str] = []
        while not gone:
            if self._over.wait(max(_LOOK_SECONDS, patience / 20)):
                return
            now = time.monotonic()
            seen |= {name: now for name, address in needed.items() if _listens(address)}
            gone = [name for name, last in seen.items() if now - last > most[name]]
        named = " and ".join("{} at {}:{}".format(name, *needed[name]) for name in gone)
        why = f"Ray's {named} does not answer any more: it was killed, or its machine was lost"
        self.headless, self._error = HEAD in gone, LostRayError(why)
        self._lost.set()
        if not self._over.wait(_END_SECONDS):
            os.write(2, f"topk: {why}; the same command goes on from here\n".encode())
            os._exit(GONE_CODE)


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Cluster:
    """The connected cluster.

    Args:
        slots: How many trials may run at once.
        line: Checks whether Ray still runs.
        environment: The properties of its machines that decide a result's last bits; None if the machines were not
            asked.
    """

    slots: int = 0
    line: Lifeline = field(default_factory=Lifeline)
    environment: Mapping[str, str] | None = None
