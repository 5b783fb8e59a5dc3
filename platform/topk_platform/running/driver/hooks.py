"""The hooks that Ray Tune calls: a searcher, a callback and a stopper, which use the conductor."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from topk_platform.running.cluster.desk import Desk
from topk_platform.running.cluster.reasons import reason_in
from topk_platform.running.driver.conductor import Conductor
from topk_platform.running.own_ray.lifeline import Lifeline

__all__ = ["MANY", "BoardSearcher", "DesertedStopper", "Listener"]

MANY = 200
"""How many messages of a worker Tune may keep in memory: it frees them when the worker's Tune trial ends."""


class BoardSearcher(Searcher):  # type: ignore[misc]
    """Tune's searcher: asks the conductor for the first trial of each worker.

    A Tune trial is a worker. Later trials come through the desk.
    """

    def __init__(self, conductor: Conductor, desk: Desk) -> None:
        super().__init__(metric=None, mode=None)
        self._conductor, self._desk = conductor, desk

    def suggest(self, trial_id: str) -> Any:
        """Return a worker's configuration, None while nothing can start, ``FINISHED`` at the end.

        It also returns ``FINISHED`` while nothing trains and trials wait for a retry, because Ctrl-C would not
        interrupt Tune's own waiting.
        """
        if self._conductor.done:
            return Searcher.FINISHED
        config = self._conductor.start(trial_id)
        if config is None:
            return Searcher.FINISHED if self._conductor.wait is not None else None
        return {**config, "desk": self._desk.name, "worker": trial_id}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing: the callback has passed on every message."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it for a restore that never happens

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the ledger holds everything."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing."""


class Listener(TrialProgressCallback):  # type: ignore[misc]
    """Tune's callback: passes workers' messages to the conductor, reports lost processes, and ends those that hang.

    It ends Tune if Ray is gone. It replaces Tune's own progress callback, which keeps every trial in memory.
    """

    def __init__(self, conductor: Conductor, line: Lifeline, desk: Desk) -> None:
        super().__init__()
        self._conductor, self._line, self._desk = conductor, line, desk
        self._messages: Counter[str] = Counter()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Watch the worker; if its trial was given to another worker before it started, end it."""
        if not self._conductor.watch(trial.trial_id):
            self._desk.kill(trial.trial_id)

    def on_trial_result(
        self,
        iteration: int,  # noqa: ARG002
        trials: list[Any],  # noqa: ARG002
        trial: Any,
        result: dict[str, Any],
        **info: Any,  # noqa: ARG002
    ) -> None:
        """Pass on the message, remove its records, which Tune would keep in memory, and give the worker its next trial.

        Tune keeps every message of a Tune trial until that trial ends. So after many messages the worker's Tune trial
        ends, and the worker continues in a new one.
        """
        if "ended" not in result:  # the worker had no trial, and its Tune trial has ended
            return
        worker = trial.trial_id
        self._messages[worker] += 1
        self._conductor.receive(worker, result)
        if result["ended"]:
            many = self._messages[worker] >= MANY
            self._desk.put(worker, None if many else self._conductor.follow(worker))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Report the error to the conductor."""
        self._forget(trial.trial_id)
        self._conductor.lose(trial.trial_id, _reason(trial.error_file))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Forget the worker: its messages have all arrived."""
        self._forget(trial.trial_id)

    def _forget(self, worker: str) -> None:
        self._messages.pop(worker, None)
        self._desk.forget(worker)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:  # noqa: ARG002
        """End the processes that hang; Ray then reports them as lost."""
        self._line.check()
        for worker in self._conductor.stalled():
            self._desk.kill(worker)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it for a restore that never happens


class DesertedStopper(Stopper):  # type: ignore[misc]
    """Tune's stopper: ends Tune when it waits only for workers that do not start.

    Attributes:
        stopped: Whether it has ended Tune.
    """

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self.stopped = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:  # noqa: ARG002 - the signature is Tune's
        """Stop no worker."""
        return False

    def stop_all(self) -> bool:
        """Return whether Tune is to end."""
        self.stopped = self.stopped or self._conductor.deserted
        return self.stopped


def _reason(path: str | None) -> str:
    """Return the exception in Tune's error file."""
    # trial.get_error() would read a copy that Tune makes later.
    return reason_in(Path(path).read_text(errors="replace") if path and Path(path).exists() else "")
