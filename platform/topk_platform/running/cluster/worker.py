"""The Ray actor that trains one trial after another, each built from its own plain data."""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from ray import tune

from topk_platform.data import use_data_folder
from topk_platform.data.loading import backbone_hash
from topk_platform.errors import ChangedError, FaultError, MissingDataError
from topk_platform.records import Store, StoreKeeper
from topk_platform.running.cluster.desk import WorkersDesk
from topk_platform.running.machine.devices import cap_memory, outside_fault
from topk_platform.running.machine.gpu_use import sample_gpu
from topk_platform.specs import Trial, TrialRecord
from topk_platform.training import Heartbeat, Training, environment, run_trials
from topk_platform.training.process.faults import is_usable, stored
from topk_platform.versions import differences, loaded_version

__all__ = ["TrialActor", "check_planned"]


def check_planned(trial: Trial) -> None:
    """Check that this process has the code and environment that a trial was planned with; each is computed once.

    Raises:
        ChangedError: if its code or its environment differs.
    """
    _check_code(trial)
    if trial.environment:
        _check_environment(trial)


def _check_code(trial: Trial) -> None:
    actual = loaded_version(trial.arm)
    if actual != trial.code_version:
        raise ChangedError(
            f"arm {trial.arm.name}: a worker has other code than the study began with: "
            f"{'; '.join(differences(trial.code_version, actual))}: the code changed meanwhile, or that machine has "
            "other sources"
        )


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


class TrialActor(tune.Trainable):  # type: ignore[misc]
    """Runs one trial after another, reporting progress to the driver every few seconds.

    The pruning thresholds were fixed when the trial started and travel with it, so an epoch costs no round trip: a
    trial of a second is one message, not one per epoch. To Tune, this worker is one trial: starting and ending a Tune
    trial costs the driver more than everything else. The first trial comes with Tune's configuration, the others from
    the driver's desk.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Take the first trial or ensemble, from the configuration."""
        self._training: Training | None = None
        self._device = "cpu"
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin a new Tune trial; nothing of the last one is kept."""
        self._next: dict[str, Any] | None = new_config
        self._desk = WorkersDesk(new_config["desk"], new_config["worker"])
        return True

    def _start(self, config: dict[str, Any]) -> Training:
        """Start a trial. A process whose GPU context was broken by the last trial cannot train any more, and exits."""
        if not is_usable(self._device):
            os._exit(1)
        # Ray raises SystemExit when a node is shut down, which would look like an exit of the trial's own code.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        trials = [Trial.from_json(text) for text in config["trials"]]
        self._device = trials[0].device
        self._report_seconds, self._share = config["report_seconds"], config["share"]
        use_data_folder(config["data"])
        self._last = Heartbeat()
        self._shown = {"arm": trials[0].arm.name, "key": trials[0].key}
        return _checked(trials, config)

    def step(self) -> dict[str, Any]:
        """Train for some seconds; return a message.

        The message holds the progress and how busy the GPU is. At the end it holds the records, the fault that kept
        the trial from its result, or the reason why the trial cannot be trained here. Tune's own loggers get the arm,
        the key and the metrics from it. If the last trial has ended and none follows, this Tune trial ends.
        """
        if self._training is None:
            config, self._next = self._next or self._desk.take(), None
            if config is None:
                return {"done": True}
            self._training = self._start(config)
        message = self._shown | self._trained(self._training)
        if message["ended"]:
            self._training = None
        return message

    def _trained(self, training: Training) -> dict[str, Any]:
        until = time.monotonic() + self._report_seconds
        try:
            while True:
                heartbeat = next(training)
                if time.monotonic() >= until or self._is_news(heartbeat):
                    self._last = heartbeat
                    return _progress(heartbeat) | self._gpu()
        except StopIteration as end:
            return self._end(end.value)
        except (ChangedError, MissingDataError) as error:
            return {"ended": True, "refused": f"{error} (on {platform.node()})"}
        except FaultError as error:
            return _fault(error)

    def _end(self, records: Sequence[TrialRecord]) -> dict[str, Any]:
        if fault := outside_fault(records, self._share):
            return _fault(fault)
        return {"ended": True, **_metrics(records), "records": [record.to_json() for record in records]}

    def _gpu(self) -> dict[str, Any]:
        sample = sample_gpu(self._device)
        return {} if sample is None else {"gpu": sample}

    def _is_news(self, heartbeat: Heartbeat) -> bool:
        """Return whether the driver must know at once: the trial needs more patience, or has its first checkpoint."""
        return heartbeat.patience > self._last.patience or heartbeat.kept > self._last.kept == 0


def _progress(heartbeat: Heartbeat) -> dict[str, Any]:
    return {
        "ended": False,
        "epoch": heartbeat.epoch,
        "kept": heartbeat.kept,
        "patience": heartbeat.patience,
        "curve": [*heartbeat.curve],
    }


def _metrics(records: Sequence[TrialRecord]) -> dict[str, float]:
    """Return the epoch and the validation metrics of a trial's last epoch; an ensemble shows its first trial's."""
    if not records or not records[0].epochs:
        return {}
    last = records[0].epochs[-1]
    return {"epoch": last.epoch, **{f"validation/{name}": value for name, value in last.validation.items()}}


def _fault(fault: FaultError) -> dict[str, Any]:
    return {"ended": True, "fault": type(fault).__name__, "why": str(fault)}


def _checked(trials: Sequence[Trial], config: Mapping[str, Any]) -> Training:
    check_planned(trials[0])  # all trials of an ensemble have one arm
    if trials[0].device == "cuda" and torch.cuda.is_available():
        cap_memory(config["share"])
    with stored("it cannot be used"):
        store, recorded = Store.open(config["store"]), frozenset(config["recorded"])
        keeper = StoreKeeper(store, config["checkpoint_seconds"], recorded=recorded, backbone=backbone_hash)
        keeper.check_seen()
    limit = config["time_limit"]
    return (yield from run_trials(trials, keeper, interruptible=False, time_limit=limit))
