"""The Ray actor that trains one trial after another, each built from its own plain data."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from ray import tune

from topk_platform.data import use_data_folder
from topk_platform.records.models import save_model
from topk_platform.records.store import Store
from topk_platform.specs import Trial
from topk_platform.training import Training, run_trial

__all__ = ["TrialActor"]

_REPORT_SECONDS = 2.0


class TrialActor(tune.Trainable):  # type: ignore[misc]
    """Runs a trial to its end, telling the driver of its progress every few seconds.

    When to stop was fixed when the trial started and travels with it, so an epoch costs no round trip: a trial of
    a second is one message, not one for each of its epochs.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Start the trial that the configuration holds."""
        self._start(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start another trial in the same process; nothing of the last one is kept."""
        self._start(new_config)
        return True

    def _start(self, config: dict[str, Any]) -> None:
        trial = Trial.from_json(config["trial"])
        use_data_folder(config["data"])
        store = Store.open(config["store"])
        self._training: Training = run_trial(trial, partial(save_model, store))

    def step(self) -> dict[str, Any]:
        """Train for some seconds; return the progress, or the whole record when the trial has ended."""
        until = time.monotonic() + _REPORT_SECONDS
        while True:
            try:
                epoch = next(self._training)
            except StopIteration as end:
                return {"done": True, "record": end.value.to_json()}
            if time.monotonic() >= until:
                return {"done": False, "epoch": epoch.epoch}
