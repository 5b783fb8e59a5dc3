"""The work of one process: the training of one trial, or of one ensemble, built from plain data."""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from topk_platform.data import use_data_folder
from topk_platform.data.dataset_table import backbone_hash
from topk_platform.errors import ChangedError, FaultError, MissingDataError
from topk_platform.records.networks import StoreKeeper
from topk_platform.records.storage.store import Store
from topk_platform.running.cluster.machine import cap_memory, outside_fault
from topk_platform.running.messages import Order
from topk_platform.specs import EpochRecord, Trial, TrialRecord
from topk_platform.training import Heartbeat, Training, environment, run_trials
from topk_platform.training.faults import is_usable, stored
from topk_platform.versions import differences, loaded_version

__all__ = ["Work"]


class Work:
    """The training of one trial, or of one ensemble: iterate over its heartbeats, and ask for messages.

    Args:
        order: The trials and the settings of the run.

    Raises:
        FaultError: while it is iterated over, if a fault of the machinery that may pass stops the training.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._trials = [Trial.from_json(text) for text in order["trials"]]
        self._device = self._trials[0].device
        if not is_usable(self._device):  # an earlier trial broke the context of this process's GPU
            os._exit(1)
        # Ray raises SystemExit when a node is shut down, which would look like an exit of the trial's own code.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        use_data_folder(order["data"])
        self._training = _checked(self._trials, order)
        self._last = self._reported = Heartbeat()
        self._end: dict[str, Any] = {}  # a :class:`Report` and the last epoch's metrics

    def __iter__(self) -> Iterator[Heartbeat]:
        """Yield heartbeats until the training has ended; it can be iterated over again after a break."""
        while not self._end:
            try:
                self._last = next(self._training)
            except StopIteration as end:
                self._end = self._ended(end.value)
            except (ChangedError, MissingDataError) as error:
                self._end = {"refused": f"{error} (on {platform.node()})"}
            except FaultError as fault:
                if fault.passing:
                    raise
                self._end = _fault(fault)
            else:
                yield self._last

    @property
    def has_news(self) -> bool:
        """Whether an epoch has ended, or the first checkpoint was kept, since the last message."""
        return self._last.epoch > self._reported.epoch or self._last.kept > 0 == self._reported.kept

    def message(self) -> dict[str, Any]:
        """Return what Tune gets to know, see :meth:`~topk_platform.running.trainable.TrialTrainable.step`."""
        self._reported = self._last
        if self._end:
            return {"done": True, **self._end}
        last = self._last
        message: dict[str, Any] = {"done": False, **_metrics(last.last), "epoch": last.epoch}
        return message | {"kept": last.kept, "patience": last.patience}

    def _ended(self, records: Sequence[TrialRecord]) -> dict[str, Any]:
        if fault := outside_fault(records, self._order["share"]):
            if fault.passing:
                raise fault
            return _fault(fault)
        last = records[0].epochs[-1] if records[0].epochs else None
        return {**_metrics(last), "records": [record.to_json() for record in records]}


def _metrics(epoch: EpochRecord | None) -> dict[str, float]:
    """Return an epoch's number and metrics by their names in Tune; an ensemble shows its first trial's."""
    if epoch is None:
        return {}
    shown = {"epoch": epoch.epoch, "train_loss": epoch.train_loss, "learning_rate": epoch.learning_rate}
    validation = {f"validation/{name}": value for name, value in epoch.validation.items()}
    return {name: value for name, value in {**shown, **validation}.items() if value is not None}


def _fault(fault: FaultError) -> dict[str, Any]:
    return {"fault": type(fault).__name__, "why": str(fault)}


def _checked(trials: Sequence[Trial], order: Order) -> Training:
    _check_planned(trials[0])  # all trials of an ensemble have one arm
    if trials[0].device == "cuda" and torch.cuda.is_available():
        cap_memory(order["share"])
    with stored("it cannot be used"):
        folder, recorded = Store.open(order["folder"]), frozenset(order["recorded"])
        keeper = StoreKeeper(folder, order["checkpoint_seconds"], recorded=recorded, backbone=backbone_hash)
        keeper.check_seen()
    limit, measures = order["time_limit"], order["measures"]
    return (yield from run_trials(trials, keeper, interruptible=False, time_limit=limit, measures=measures))


def _check_planned(trial: Trial) -> None:
    """Raise ``ChangedError`` unless this process has the code and environment that a trial was planned with."""
    actual = loaded_version(trial.arm)
    if actual != trial.code_version:
        raise ChangedError(
            f"arm {trial.arm.name}: a worker has other code than the study began with: "
            f"{'; '.join(differences(trial.code_version, actual))}: the code changed meanwhile, or that machine has "
            "other sources"
        )
    if trial.environment:
        _check_environment(trial)


def _check_environment(trial: Trial) -> None:
    if trial.device == "cuda" and not torch.cuda.is_available():
        raise ChangedError(f"arm {trial.arm.name}: torch finds no GPU")
    actual = environment(trial.device)
    differing = [
        f"{name} {value}, not {trial.environment[name]}"
        for name, value in actual.items()
        if trial.environment[name] != value
    ]
    if differing:
        raise ChangedError(
            f"arm {trial.arm.name}: a worker's environment is not the one that the study began with: "
            f"{'; '.join(differing)}; machines and versions may differ with --mixed"
        )
