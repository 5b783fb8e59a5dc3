"""The number of workers that wait for their start although the cluster has room for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import placement_group_table

from topk_platform.running.cluster.machines import as_options

__all__ = ["Room"]

_TRY_SECONDS = 120.0  # a node's first worker fetches the packages
_WAITING = {"PENDING", "PREPARED", "RESCHEDULING"}


class Room:
    """Counts the waiting workers that have all that they need. It never blocks.

    A worker has what it needs if Ray has reserved its resources, so that only its process is missing. All workers have
    what they need if Ray runs a task with the same needs: then these resources were free. While others use them, or
    nodes are still being added, the task waits as well, and is cancelled after two minutes. The task is tried only if
    the whole cluster has that much free, so that no autoscaler adds a node for it.

    Args:
        needs: The resources of a worker, by Ray's names.
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, needs: Mapping[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        self._needs, self._clock = dict(needs), clock
        self._task: Any = None
        self._end = 0.0

    def __call__(self, waiting: int) -> int | None:
        """Return how many of the waiting workers could have started; None while the answer is not known yet."""
        if self._task is None and (reserved := waiting - self._unreserved()) > 0:
            return reserved
        if self._task is None:
            free = ray.available_resources()
            if any(free.get(name, 0.0) < amount for name, amount in self._needs.items()):
                return 0
            self._task, self._end = self._submitted(), self._clock() + _TRY_SECONDS
        return self._answer(waiting)

    def _unreserved(self) -> int:
        """Return how many reservations like a worker's Ray has not granted, those of other drivers included."""
        return sum(
            group["state"] in _WAITING and list(group["bundles"].values()) == [self._needs]
            for group in placement_group_table().values()
        )

    def _submitted(self) -> Any:
        return ray.remote(max_retries=0, **as_options(self._needs))(_nothing).remote()

    def _answer(self, waiting: int) -> int | None:
        ended, _ = ray.wait([self._task], timeout=0)
        if not ended and self._clock() < self._end:
            return None
        task, self._task = self._task, None
        if not ended:
            ray.cancel(task)
            return 0
        try:
            ray.get(task)
        except RayError:  # its node was lost, or cannot start processes
            return 0
        return waiting


def _nothing() -> None:
    """Do nothing."""
