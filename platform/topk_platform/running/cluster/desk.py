"""Where a worker fetches its next trial: a named Ray actor beside the driver."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["Desk", "WorkersDesk"]

_NAMESPACE = "topk"


class _Trays:
    """The actor: one tray for each worker, into which the driver puts what the worker takes next."""

    def __init__(self) -> None:
        self._trays: dict[str, asyncio.Future[Any]] = {}
        self._processes: dict[str, Any] = {}

    def _tray(self, worker: str) -> asyncio.Future[Any]:
        if worker not in self._trays:
            self._trays[worker] = asyncio.get_running_loop().create_future()
        return self._trays[worker]

    async def register(self, worker: str, process: Any) -> None:
        """Note which process a worker is."""
        self._processes[worker] = process

    async def put(self, worker: str, config: Any) -> None:
        self._tray(worker).set_result(config)

    async def take(self, worker: str, process: Any) -> Any:
        """Wait for what the driver puts down. Registers as well: the actor may have been started anew."""
        self._processes[worker] = process
        config = await self._tray(worker)
        del self._trays[worker]
        return config

    async def process(self, worker: str) -> Any:
        return self._processes.get(worker)

    async def forget(self, worker: str) -> None:
        self._trays.pop(worker, None)
        self._processes.pop(worker, None)


class Desk:
    """The driver's side. The actor runs on the driver's machine, takes no core, and ends with the driver.

    Ray starts the actor anew if its process dies. A worker whose configuration was lost with it stays silent, so the
    driver ends that worker like any other that hangs, and tries its trial again.
    """

    def __init__(self) -> None:
        self.name = f"desk-{uuid.uuid4().hex}"
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Trays)
        self._actor = actor.options(name=self.name, namespace=_NAMESPACE, scheduling_strategy=here).remote()

    def put(self, worker: str, config: dict[str, Any] | None) -> None:
        """Give a worker its next trial; None ends the worker's Tune trial."""
        self._actor.put.remote(worker, config)

    def kill(self, worker: str) -> None:
        """End a worker's process; Ray then reports it as lost."""
        process = ray.get(self._actor.process.remote(worker))
        if process is not None:
            ray.kill(process)

    def forget(self, worker: str) -> None:
        """Forget a worker whose Tune trial has ended."""
        self._actor.forget.remote(worker)

    def close(self) -> None:
        """End the actor, once it has done all that it was asked to."""
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
        self._actor = ray.get_actor(name, namespace=_NAMESPACE)
        self._me = ray.get_runtime_context().current_actor
        ray.get(self._actor.register.remote(worker, self._me))

    def take(self) -> dict[str, Any] | None:
        """Wait for the next trial's configuration; None if this Tune trial is to end."""
        config: dict[str, Any] | None = ray.get(self._actor.take.remote(self._worker, self._me))
        return config
