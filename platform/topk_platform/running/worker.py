"""The Ray actor that trains one trial after another, each built from its own plain data."""

from __future__ import annotations

import platform
import signal
import time
from collections.abc import Sequence
from typing import Any

import torch
from ray import tune

from topk_platform.code_version import loaded_version
from topk_platform.data import use_data_folder
from topk_platform.errors import ChangedError, MissingDataError
from topk_platform.records import Store, StoreKeeper
from topk_platform.specs import Trial
from topk_platform.training import Training, environment, run_trials

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
        """Start another trial in the same process; nothing of the last one is kept."""
        self._start(new_config)
        return True

    def _start(self, config: dict[str, Any]) -> None:
        # Ray raises SystemExit where a node is shut down, which would look like an exit of the trial's own code.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        trials = [Trial.from_json(text) for text in config["trials"]]
        use_data_folder(config["data"])
        keeper = StoreKeeper(Store.open(config["store"]), config["checkpoint_seconds"])
        self._training: Training = _checked(trials, keeper)

    def step(self) -> dict[str, Any]:
        """Train for some seconds; return the progress, the records when the training has ended, or why it cannot be."""
        until = time.monotonic() + _REPORT_SECONDS
        while True:
            try:
                epoch = next(self._training)
            except StopIteration as end:
                return {"done": True, "records": [record.to_json() for record in end.value]}
            except (ChangedError, MissingDataError) as error:
                return {"done": True, "refused": f"{error} (on {platform.node()})"}
            if time.monotonic() >= until:
                return {"done": False, "epoch": epoch}


def _checked(trials: Sequence[Trial], keeper: StoreKeeper) -> Training:
    check_planned(trials[0])  # an ensemble's are of one arm
    return (yield from run_trials(trials, keeper, interruptible=False))
