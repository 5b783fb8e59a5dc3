"""What Ray Tune calls: its searcher, its scheduler and its callback, which hand everything to the conductor."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import ray
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from topk_platform.running.driver.conductor import Conductor
from topk_platform.running.own_ray.lifeline import Lifeline

__all__ = ["BoardSearcher", "Listener", "ShortMemory"]

_REASON_LENGTH = 600
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")
_RAYS_GUESSES = " Some common causes include"  # a paragraph on what it might have been
_MANY = 100  # ended trials that Tune may remember


class BoardSearcher(Searcher):  # type: ignore[misc]
    """Tune's searcher: asks the conductor for trials."""

    def __init__(self, conductor: Conductor) -> None:
        super().__init__(metric=None, mode=None)
        self._conductor = conductor

    def suggest(self, trial_id: str) -> Any:
        """Return a configuration, None while nothing can start, ``FINISHED`` at the end.

        ``FINISHED`` also while nothing trains and trials wait for a retry, because Tune would wait where Ctrl-C does
        not reach it.
        """
        if self._conductor.done:
            return Searcher.FINISHED
        found = self._conductor.start(trial_id)
        if found is None and self._conductor.wait is not None:
            return Searcher.FINISHED
        return found

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing: the callback has heard it all."""

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the ledger holds everything."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing."""


class Listener(TrialProgressCallback):  # type: ignore[misc]
    """Tune's callback: passes workers' messages to the conductor, reports lost processes, and ends those that hang.

    It ends Tune where Ray is gone. It replaces Tune's own progress callback, which keeps every trial in memory.
    """

    def __init__(self, conductor: Conductor, line: Lifeline) -> None:
        super().__init__()
        self._conductor, self._line = conductor, line

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Have the trial watched."""
        self._conductor.watch(trial.trial_id)

    def on_trial_result(
        self,
        iteration: int,  # noqa: ARG002
        trials: list[Any],  # noqa: ARG002
        trial: Any,
        result: dict[str, Any],
        **info: Any,  # noqa: ARG002
    ) -> None:
        """Hand over the message, remove its records, which Tune would keep in memory, and assign the next trial.

        The process gets the next trial before Tune asks for the next step, because Ray keeps the order of calls.
        """
        if "ended" not in result:  # the process had nothing to do, and Tune is done with it
            return
        self._conductor.hear(trial.trial_id, result)
        if result["ended"] and (following := self._conductor.follow(trial.trial_id)) is not None:
            trial.temporary_state.ray_actor.assign.remote(following)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Hand over what Ray says of it."""
        self._conductor.lose(trial.trial_id, _reason(trial.error_file))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Do nothing: all has been heard."""

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:  # noqa: ARG002
        """End the processes that hang; Ray then tells of them as lost."""
        self._line.check()
        for tune_id in self._conductor.stalled():
            for trial in trials:
                if trial.trial_id == tune_id and trial.temporary_state.ray_actor is not None:
                    ray.kill(trial.temporary_state.ray_actor)


class ShortMemory(FIFOScheduler):  # type: ignore[misc]
    """Tune's scheduler: first come, first served; ended trials are forgotten.

    Tune keeps every trial that it ever had, in memory and in the state that it writes every few seconds, and every
    message of those that run. Nothing asks it for them. Starting Tune anew now and then would do as well, but for
    workers that idle until the longest trial of their time has ended, and then start anew.
    """

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:  # noqa: ARG002
        """Forget the messages: all have arrived, because a process has one step under way at a time."""
        tune_controller._actor_manager.clear_actor_task_futures(tune_controller._trial_to_actor[trial])
        return str(FIFOScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:  # noqa: ARG002
        """Forget, once they are many."""
        self._forget(tune_controller)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:  # noqa: ARG002
        """Forget, once they are many."""
        self._forget(tune_controller)

    def _forget(self, controller: Any) -> None:
        ended = [trial for trial in controller._trials if trial.is_finished()]
        if len(ended) < _MANY:
            return
        gone = set(ended)
        controller._trials[:] = [trial for trial in controller._trials if trial not in gone]
        kinds = (controller._live_trials, controller._stopped_trials, controller._failed_trials)
        for trials in (*kinds, controller._trials_to_cache):
            trials.difference_update(gone)
        for trial in ended:
            controller._trial_metadata.pop(trial.trial_id, None)
            for folder in (trial.local_path, trial.path):
                shutil.rmtree(folder, ignore_errors=True)


def _reason(path: str | None) -> str:
    """Return the exception in Tune's error file, and the last line if it says more."""
    # Not trial.get_error(), which reads a copy that Tune has yet to make.
    text = Path(path).read_text(errors="replace") if path and Path(path).exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no reason is known"
    raised = [line for line in lines if _EXCEPTION.match(line)] or lines
    told = " ".join(dict.fromkeys((raised[-1], lines[-1])))
    return told.partition(_RAYS_GUESSES)[0][:_REASON_LENGTH]
