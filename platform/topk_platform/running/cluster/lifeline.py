"""A run's connection to Ray, and the watch over it, so that a run ends when its Ray is gone."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from topk_platform.records.storage.store import Store
from topk_platform.running.cluster.driver_process import interrupts_wait
from topk_platform.running.cluster.reaching import Patience
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import Study
from topk_platform.specs.checks import plural

__all__ = ["GONE_CODE", "HEAD", "RAYLET", "Cluster", "Lifeline", "LostRayError", "on_cluster"]

GONE_CODE = 3
"""The exit code of a run that must end at once because its Ray is gone: that of faults of machines."""

HEAD, RAYLET = "GCS", "raylet"
"""What a driver needs of Ray: the head's main process, and the main process of the node that it is on."""

_LOOK_SECONDS = 0.25
_CONNECT_SECONDS = 5.0
_END_SECONDS = 9.0  # Ray itself ends its driver some seconds later, with a less helpful message


class LostRayError(BaseException):
    """Ray is gone. This is not an ``Exception``, because Tune would then ask this Ray to clean up."""


@dataclass
class Lifeline:
    """Checks whether Ray still runs; without addresses it is assumed to run.

    Without its raylet a driver trains nothing and waits for ever. Without the GCS any call of Ray may wait forever, and
    after some time Ray ends this process. A thread asks whether both still listen. When one is gone, the next call of
    :meth:`check` in the run's thread raises an error. If that call does not come in time, because the run's thread
    waits for Ray, or the block does not end in time without the GCS, the thread ends this process. Trials that have
    ended by then are in the ledger; the others are trained again.

    Args:
        needed: Hosts and ports, by :data:`HEAD` and :data:`RAYLET`.
        patience: For how many seconds the head may be away.

    Attributes:
        headless: Whether the head is gone, so that no call of Ray returns.
    """

    needed: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    patience: float = 0.0
    headless: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._lost, self._over = threading.Event(), threading.Event()
        self._error = LostRayError()  # kept, because deleting the objects of Ray in its frames would call Ray

    def __enter__(self) -> Self:
        if self.needed:
            threading.Thread(target=self._watch, name="lifeline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def check(self) -> None:
        """Raise ``LostRayError`` if this Ray is gone."""
        if self._lost.is_set():
            if not self.headless:  # without the head only seconds are left
                self._over.set()
            raise self._error

    def _watch(self) -> None:
        seen = dict.fromkeys(self.needed, time.monotonic())
        gone: list[str] = []
        while not gone:
            if self._over.wait(max(_LOOK_SECONDS, self.patience / 20)):
                return
            now, patience = time.monotonic(), {HEAD: self.patience, RAYLET: 0.0}
            seen |= {name: now for name, address in self.needed.items() if _listens(address)}
            gone = [name for name, last in seen.items() if now - last > patience[name]]
        named = " and ".join("{} at {}:{}".format(name, *self.needed[name]) for name in gone)
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


@contextmanager
def on_cluster(study: Study, options: RunOptions, store: Store, patience: Patience) -> Iterator[Cluster]:
    """Connect to Ray for as long as the block lasts, and check the machines of a cluster.

    Args:
        study: The study.
        options: The options of the run.
        store: The store, which all machines must see.
        patience: How long to wait for the cluster.

    Raises:
        ClusterError: if Ray cannot be used, no trial fits on any node, or a node is wrong for the study.
    """
    # Ray and Tune take seconds to import, and a finished study does not need them. Everything is imported before other
    # threads start, because these import modules too.
    with interrupts_wait():
        import ray  # noqa: PLC0415

        import topk_platform.running.tuner  # noqa: F401, PLC0415
        from topk_platform.running.cluster.connecting import connected  # noqa: PLC0415
        from topk_platform.running.cluster.nodes import check_nodes, slots  # noqa: PLC0415

    address, given = options.address, ray.is_initialized()
    with connected(study, address, options.workers, patience) as line:
        count = slots(study, options.workers, None if address is None else patience)
        if address is not None:
            head = ray.get_runtime_context().gcs_address
            patience.say(f"joined the Ray cluster at {head}: {plural(count, 'trial')} at once")
        checked = address is not None or given
        common = check_nodes(study, store, patience, mixed=options.mixed) if checked else None
        yield Cluster(count, line, None if options.mixed else common)
