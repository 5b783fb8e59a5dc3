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

from topk_platform.code_version import loaded_version
from topk_platform.data import use_data_folder
from topk_platform.errors import ChangedError, FaultError, MissingDataError
from topk_platform.records import Store, StoreKeeper
from topk_platform.specs import Trial
from topk_platform.training import Finished, Pulse, Training, environment, run_trials
from topk_platform.training.faults import is_usable, stored

__all__ = ["TrialActor", "check_planned"]

_REPORT_SECONDS = 2.0


def check_planned(trial: Trial) -> None:
    """Check that this process has the code and the environment that a trial was planned with; both are found once.

    Raises:
        ChangedError: if it has not.
    """
    _check_code(trial)
    if trial.environment:
        _check_environment(trial)


def _check_code(trial: Trial) -> None:
    found = loaded_version(trial.arm)
    if found != trial.code_version:
        raise ChangedError(
            f"arm {trial.arm.name}: a worker found code version {found} where the study began with "
            f"{trial.code_version}: a source file changed meanwhile, or that machine has other sources"
        )


def _check_environment(trial: Trial) -> None:
    if trial.device == "cuda" and not torch.cuda.is_available():
        raise ChangedError(f"arm {trial.arm.name}: torch finds no GPU")
    found = environment(trial.device)
    differing = [
        f"{name} {value}, not {trial.environment[name]}"
        for name, value in found.items()
        if trial.environment[name] != value
    ]
    if differing:
        raise ChangedError(
            f"arm {trial.arm.name}: a worker is another machine than the study began with, {'; '.join(differing)}; "
            "machines and versions may differ with --mixed"
        )


class TrialActor(tune.Trainable):  # type: ignore[misc]
    """Runs a trial to its end, telling the driver of its progress every few seconds.

    When to stop was fixed when the trial started and travels with it, so an epoch costs no round trip: a trial of
    a second is one message, not one for each of its epochs.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Start the trial, or the ensemble, that the configuration holds."""
        self._start(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start another trial in the same process; nothing of the last one is kept.

        A process that can no longer train, for the last trial broke its GPU's context, ends: the driver takes another.
        """
        if not is_usable(self._device):
            os._exit(1)
        self._start(new_config)
        return True

    def _start(self, config: dict[str, Any]) -> None:
        # Ray raises SystemExit where a node is shut down, which would look like an exit of the trial's own code.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        trials = [Trial.from_json(text) for text in config["trials"]]
        self._device = trials[0].device
        use_data_folder(config["data"])
        self._training: Training = _checked(trials, config)
        self._told = Pulse()

    def step(self) -> dict[str, Any]:
        """Train for some seconds; return a message.

        It holds the progress; or the records as soon as there are any; or, at the end, why a network could not be
        kept, the fault that kept the trial from its result, or why it cannot be trained here.
        """
        until = time.monotonic() + _REPORT_SECONDS
        try:
            while True:
                pulse = next(self._training)
                if pulse.records or time.monotonic() >= until or self._is_news(pulse):
                    self._told = pulse
                    return _progress(pulse)
        except StopIteration as end:
            return _end(end.value, told=bool(self._told.records))
        except (ChangedError, MissingDataError) as error:
            return {"done": True, "refused": f"{error} (on {platform.node()})"}
        except FaultError as error:
            return {"done": True, "fault": type(error).__name__, "why": str(error)}

    def _is_news(self, pulse: Pulse) -> bool:
        """Return whether the driver has to know at once: more patience is needed, or there is a first checkpoint."""
        return pulse.patience > self._told.patience or pulse.kept > self._told.kept == 0


def _progress(pulse: Pulse) -> dict[str, Any]:
    told = {"done": False, "epoch": pulse.epoch, "kept": pulse.kept, "patience": pulse.patience}
    return told | ({"records": [record.to_json() for record in pulse.records]} if pulse.records else {})


def _end(finished: Finished, told: bool) -> dict[str, Any]:
    if told:
        return {"done": True, "unsaved": finished.unsaved}
    return {"done": True, "records": [record.to_json() for record in finished.records]}


def _checked(trials: Sequence[Trial], config: Mapping[str, Any]) -> Training:
    check_planned(trials[0])  # an ensemble's are of one arm
    with stored("it cannot be opened"):
        keeper = StoreKeeper(Store.open(config["store"]), config["checkpoint_seconds"])
    limit = config["time_limit"]
    return (yield from run_trials(trials, keeper, interruptible=False, time_limit=limit))
