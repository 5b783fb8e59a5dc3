"""The work of one process: the training of one trial, or of one ensemble, built from plain data."""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Generator, Sequence
from typing import Any

import torch

from topk_platform.data import use_data_folder
from topk_platform.data.dataset_table import backbone_hash
from topk_platform.errors import ChangedError, FaultError, MissingDataError
from topk_platform.records.networks import StoreKeeper
from topk_platform.records.storage.store import Store
from topk_platform.running.cluster.machine import cap_memory, outside_fault
from topk_platform.running.messages import Order, shown
from topk_platform.specs import Trial
from topk_platform.training import Heartbeat, Training, environment, run_trials
from topk_platform.training.faults import is_usable, stored
from topk_platform.versions import differences, loaded_version

__all__ = ["Work", "work"]

Work = Generator[Heartbeat, None, dict[str, Any]]


def work(order: Order) -> Work:
    """Train one trial, or one ensemble; yield heartbeats, and return what the driver gets at the end.

    Args:
        order: The trials and the settings of the run.

    Returns:
        A generator. It returns a :class:`~topk_platform.running.messages.Report` and the last epoch's metrics.

    Raises:
        FaultError: if a fault of the machinery that may pass stops the training.
    """
    trials = [Trial.from_json(text) for text in order["trials"]]
    if not is_usable(trials[0].device):  # an earlier trial broke the context of this process's GPU
        os._exit(1)
    # Ray raises SystemExit when a node is shut down, which would look like an exit of the trial's own code.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    use_data_folder(order["data"])
    try:
        records = yield from _checked(trials, order)
        fault = outside_fault(records, order["share"])
    except (ChangedError, MissingDataError) as error:
        return {"refused": f"{error} (on {platform.node()})"}
    except FaultError as error:
        fault = error
    if fault is None:
        last = records[0].epochs[-1] if records[0].epochs else None
        return {**shown(last), "records": [record.to_json() for record in records]}
    if fault.passing:
        raise fault
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
