"""What Ray Tune calls a trainable: it trains a trial of ours, or an ensemble, and reports its epochs to Tune."""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ray
from ray import tune

from topk_platform.running.cluster.machine import local_cpus
from topk_platform.running.messages import Order, shown

if TYPE_CHECKING:
    from topk_platform.running.worker import Work

__all__ = ["TrialTrainable", "own_cores"]

_LONGEST_SECONDS = 2.0  # the longest time between two messages while steps are made
_ARM_SECONDS = 1.0  # each new limit of the watchdog starts a thread
_STDERR = 2


class TrialTrainable(tune.Trainable):  # type: ignore[misc]  # Ray has no types
    """Trains one trial of ours, or one ensemble; Tune reuses its process for the next.

    Pruning thresholds are fixed when a trial starts, so it stops itself and needs no scheduler. A fault of the
    machinery is raised: Tune then starts the trial again, which continues from its checkpoint in the store. An error of
    the trial's own code is a result and comes with the records in the last message.

    A watchdog ends the process if it is silent for too long: for ``start_limit`` until the first epoch has ended, and
    afterwards for many times the usual time of an epoch. It also ends a process that holds Python's lock, because it
    waits in C.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Take the first trial. Unless ``TOPK_DECODERS`` is set, the workers of a node share its cores for decoding."""
        if ray.is_initialized() and (here := ray.get_runtime_context()).get_actor_id():
            node = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == here.get_node_id())
            cores = own_cores(here.get_assigned_resources(), node, local_cpus())
            os.environ.setdefault("TOPK_DECODERS", str(cores))
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial; nothing of the last one is kept."""
        self._order: Order = new_config["order"]
        self._begin = time.monotonic() + self._order["pause"]
        self._work: Work | None = None
        self._epoch = self._kept = 0  # in the last message
        return True

    def step(self) -> dict[str, Any]:
        """Train until an epoch has ended or some seconds have passed, and return a message.

        While the trial trains, the message holds the newest epoch's metrics by their names, and the step of the
        last checkpoint. At the end it holds the records, or why the trial cannot be trained.
        """
        if (left := self._begin - time.monotonic()) > 0:  # after a fault the next try waits
            time.sleep(min(left, _LONGEST_SECONDS))
            return {"done": False}
        try:
            self._arm(self._order["start_limit"])
            return self._trained()
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _trained(self) -> dict[str, Any]:
        if self._work is None:
            # Imported under the watchdog: torch and the user's modules may lie on a file system that hangs.
            from topk_platform.running.worker import work  # noqa: PLC0415

            self._work = work(self._order)
        began = time.monotonic()
        while True:
            try:
                now = next(self._work)
            except StopIteration as end:
                return {"done": True, **end.value}
            # News are an epoch that has ended, and the first checkpoint.
            news = now.epoch > self._epoch or now.kept > 0 == self._kept
            if time.monotonic() - began >= (self._order["report_seconds"] if news else _LONGEST_SECONDS):
                self._epoch, self._kept = now.epoch, now.kept
                progress = {"epoch": now.epoch, "kept": now.kept, "patience": now.patience}
                return {"done": False, **shown(now.last), **progress}
            if time.monotonic() - self._armed >= _ARM_SECONDS:
                self._arm(now.patience if now.epoch else self._order["start_limit"])

    def _arm(self, seconds: float) -> None:
        """Let the process end with a traceback in its log unless this is called again, or cancelled, in time."""
        self._armed = time.monotonic()
        faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)


def own_cores(taken: Mapping[str, float], node: Mapping[str, float], cores: int) -> int:
    """Return a worker's part of its node's cores, at least 1, if as many workers run there as fit.

    Args:
        taken: The amount that the worker has of each of Ray's resources.
        node: The amount that the node has of each.
        cores: The node's cores.

    Example:
        >>> own_cores({"CPU": 1, "GPU": 0.25}, {"CPU": 16, "GPU": 1}, 16), own_cores({"CPU": 2}, {"CPU": 16}, 16)
        (4, 2)
    """
    fit = [node[name] // amount for name, amount in taken.items() if amount and node.get(name)]
    return max(1, int(cores // max(1, min(fit, default=1))))
