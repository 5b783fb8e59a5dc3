"""The Ray actor that trains one trial after another, each built from its own plain data."""

from __future__ import annotations

import time
from typing import Any

from ray import tune

from topk_platform.data import use_data_folder
from topk_platform.records import Store, StoreKeeper
from topk_platform.specs import Trial
from topk_platform.training import Training, run_trials

__all__ = ["TrialActor"]

_REPORT_SECONDS = 2.0


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
        trials = [Trial.from_json(text) for text in config["trials"]]
        use_data_folder(config["data"])
        keeper = StoreKeeper(Store.open(config["store"]), config["checkpoint_seconds"])
        self._training: Training = run_trials(trials, keeper)

    def step(self) -> dict[str, Any]:
        """Train for some seconds; return the progress, or the records when the training has ended."""
        until = time.monotonic() + _REPORT_SECONDS
        while True:
            try:
                epoch = next(self._training)
            except StopIteration as end:
                return {"done": True, "records": [record.to_json() for record in end.value]}
            if time.monotonic() >= until:
                return {"done": False, "epoch": epoch}
