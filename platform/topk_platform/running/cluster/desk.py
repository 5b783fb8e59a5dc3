"""The desk from which a worker gets its next trial: a named Ray actor on the driver's machine."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["Desk", "Trays", "WorkersDesk"]

_NAMESPACE = "topk"


class Trays:
    """The actor. It holds numbered trays for each worker; the driver puts the worker's next trial into each.

    Ray may repeat a call whose answer was lost. The numbers keep a repeated call from handing out a trial a second
    time: a worker never goes back to an earlier tray.
    """

    def __init__(self) -> None:
        self._trays: dict[tuple[str, int], asyncio.Future[Any]] = {}
        self._processes: dict[str, Any] = {}

    def _tray(self, worker: str, number: int) -> asyncio.Future[Any]:
        if (worker, number) not in self._trays:
            self._trays[worker, number] = asyncio.get_running_loop().create_future()
        return self._trays[worker, number]

    async def register(self, worker: str, process: Any) -> None:
        """Note which process a worker is."""
        self._processes[worker] = process

    async def put(self, worker: str, number: int, config: Any) -> None:
        """Put a configuration into a tray; do nothing if the tray has one."""
        tray = self._tray(worker, number)
        if not tray.done():
            tray.set_result(config)

    async def take(self, worker: str, number: int, process: Any) -> Any:
        """Wait for the driver's configuration. Register the worker too, because the actor may have been restarted."""
        self._processes[worker] = process
        for earlier in [key for key in self._trays if key[0] == worker and key[1] < number]:
            del self._trays[earlier]
        return await self._tray(worker, number)

    async def process(self, worker: str) -> Any:
        """Return the worker's process, or None if it has not registered."""
        return self._processes.get(worker)

    async def forget(self, worker: str) -> None:
        """Clear a worker's trays."""
        self._processes.pop(worker, None)
        for key in [key for key in self._trays if key[0] == worker]:
            del self._trays[key]


class Desk:
    """The driver's side. The actor runs on the driver's machine, takes no core, and ends with the driver.

    Ray starts the actor again if its process dies. A worker whose configuration was lost with it stays silent, so the
    driver ends that worker like any other that hangs, and tries its trial again.
    """

    def __init__(self) -> None:
        self.name = f"desk-{uuid.uuid4().hex}"
        self._puts: Counter[str] = Counter()
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Trays)
        self._actor = actor.options(name=self.name, namespace=_NAMESPACE, scheduling_strategy=here).remote()

    def put(self, worker: str, config: dict[str, Any] | None) -> None:
        """Give a worker its next trial; None ends the worker's Tune trial."""
        self._puts[worker] += 1
        self._actor.put.remote(worker, self._puts[worker], config)

    def kill(self, worker: str) -> None:
        """End a worker's process; Ray then reports it as lost."""
        process = ray.get(self._actor.process.remote(worker))
        if process is not None:
            ray.kill(process)

    def forget(self, worker: str) -> None:
        """Forget a worker whose Tune trial has ended."""
        self._puts.pop(worker, None)
        self._actor.forget.remote(worker)

    def close(self) -> None:
        """End the actor after it has processed all earlier calls."""
        ray.get(self._actor.forget.remote(""))
        ray.kill(self._actor)


class WorkersDesk:
    """The worker's side.

    Args:
        name: The desk's name.
        worker: The worker's name: its Tune trial's.
    """

    def __init__(self, name: str, worker: str) -> None:
        self._worker = worker
        self._takes = 0
        self._actor = ray.get_actor(name, namespace=_NAMESPACE)
        self._me = ray.get_runtime_context().current_actor
        ray.get(self._actor.register.remote(worker, self._me))

    def take(self) -> dict[str, Any] | None:
        """Wait for the next trial's configuration; None if this Tune trial is to end."""
        self._takes += 1
        config: dict[str, Any] | None = ray.get(self._actor.take.remote(self._worker, self._takes, self._me))
        return config
