"""Ray Tune runs what is missing of a study: a trial of Tune is a trial of ours, or one of its ensembles."""

from __future__ import annotations

import logging
import math
import re
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.exceptions import OutOfMemoryError
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from topk_platform.data import data_folder
from topk_platform.own_measures import of_scores
from topk_platform.running import dispatcher as dispatching
from topk_platform.running.cluster.driver_process import in_variables, scratch_folder
from topk_platform.running.cluster.lifeline import LostRayError
from topk_platform.running.cluster.machine import trial_resources
from topk_platform.running.cluster.ray_internals import reason_in, without_keys
from topk_platform.running.dispatcher import Dispatcher
from topk_platform.running.messages import Order
from topk_platform.running.run_options import RunOptions
from topk_platform.running.summary import Outcome
from topk_platform.running.trainable import TrialTrainable
from topk_platform.specs import Study

__all__ = ["Ending", "RecordCallback", "StudySearcher", "order_for", "tune_trials"]

_REPORT_SECONDS = 0.25  # between two epochs of a trial that are reported
_MESSAGES_A_SECOND = 50  # of all trials together; each takes the driver a millisecond or two
_LONGEST_NAME = 100  # of an arm, in the name of a folder and in a column of a table
_TUNES = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # a user's relative paths are relative to the folder in which the command runs
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "10",  # a process that does not answer when the run ends early is killed after them
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Tune's state is never read again
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


def order_for(study: Study, folder: str, options: RunOptions, slots: int) -> Order:
    """Return the settings that every process of a run gets, without trials.

    Args:
        study: The study.
        folder: The URI of the study's folder.
        options: The options of the run.
        slots: How many trials may run at once.
    """
    return {
        "trials": [],
        "recorded": [],
        "pause": 0.0,
        "folder": folder,
        "data": str(data_folder()),
        "checkpoint_seconds": options.checkpoints,
        "time_limit": math.inf if study.time_limit is None else 3600 * study.time_limit,
        "start_limit": 3600 * study.start_limit,
        "report_seconds": max(_REPORT_SECONDS, slots / _MESSAGES_A_SECOND),
        "share": study.gpus,
        "measures": of_scores(study.measures),
    }


def tune_trials(
    study: Study, dispatcher: Dispatcher, options: RunOptions, slots: int, callbacks: Sequence[Any] = ()
) -> Outcome:
    """Run the remaining trials and return what they left, and why the run ended.

    The run ends early after an interrupt, or if Ray is gone or cannot be relied on any more.

    Args:
        study: The study, which says what resources a trial needs.
        dispatcher: Hands out the trials and takes in what becomes of them.
        options: The options of the run.
        slots: How many trials may run at once.
        callbacks: More callbacks of Tune.

    Raises:
        Exception: the dispatcher's error, once the running trials have been cut off: ``ChangedError`` if a process
            has other code or data than the study was checked with.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with scratch_folder() as scratch, without_keys(), in_variables(_TUNES):
            results = Path(options.tensorboard or scratch).expanduser().absolute()
            _tuner(study, dispatcher, options, slots, callbacks, str(results)).fit()
    except LostRayError as error:
        dispatcher.outcome.lost = str(error)  # the next run continues the trials
    except RuntimeError as error:
        if not isinstance(error.__cause__, OutOfMemoryError):
            raise
        # The driver's machine was low on memory, and Ray may have killed processes that all trials share.
        killed = str(error.__cause__).partition("\n")[0].rstrip(". ")
        dispatcher.outcome.lost = f"{killed}; use fewer --workers, or end other programs"
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)  # Tune's ``fit`` replaces it and does not restore it
        dispatcher.close()
    if dispatcher.error is not None:
        raise dispatcher.error
    return dispatcher.outcome


def _tuner(
    study: Study,
    dispatcher: Dispatcher,
    options: RunOptions,
    slots: int,
    callbacks: Sequence[Any],
    folder: str,
) -> tune.Tuner:
    trainable = tune.with_resources(TrialTrainable, tune.PlacementGroupFactory([trial_resources(study)]))
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=StudySearcher(dispatcher),
            num_samples=-1,
            max_concurrent_trials=slots,
            reuse_actors=True,
            trial_name_creator=lambda trial: str(trial.config["key"]),
            trial_dirname_creator=_folder_of,
        ),
        run_config=tune.RunConfig(
            name=study.name,
            storage_path=folder,
            callbacks=[RecordCallback(dispatcher), *callbacks, *_tunes_callbacks(options)],
            stop=Ending(dispatcher),
            failure_config=tune.FailureConfig(max_failures=len(dispatching.PAUSES)),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            verbose=int(options.tune_table),
            progress_reporter=_reporter(study),
        ),
    )


def _reporter(study: Study) -> tune.ProgressReporter:
    """Return what prints Tune's table if it is wanted; in a notebook Tune's choice would clear the study's progress."""
    metrics = ["epoch", "train_loss", *dict.fromkeys(f"validation/{arm.metric}" for arm in study.arms)]
    return tune.CLIReporter(
        metric_columns=metrics,
        parameter_columns=["arm", "seed"],
        print_intermediate_tables=True,
        max_column_length=_LONGEST_NAME,
    )


def _folder_of(trial: Any) -> str:
    """Return the name of a trial's folder: for people who look into TensorBoard, and short enough for a file system."""
    return f"{trial.config['arm'].replace('/', '_')[:_LONGEST_NAME]}_{trial.trial_id}"


def _tunes_callbacks(options: RunOptions) -> list[Any]:
    """Return Tune's own callbacks that the options ask for."""
    callbacks: list[Any] = []
    if options.tensorboard is not None:
        from ray.tune.logger import TBXLoggerCallback  # noqa: PLC0415 - only where it is wanted

        callbacks.append(TBXLoggerCallback())
    if options.wandb is not None:
        from ray.air.integrations.wandb import WandbLoggerCallback  # noqa: PLC0415 - as above

        callbacks.append(WandbLoggerCallback(project=options.wandb, excludes=["order"]))
    return callbacks


class StudySearcher(Searcher):  # type: ignore[misc]  # Ray has no types
    """Tune's searcher: its next suggestion is the trial that the study's progress says is next."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__(metric=None, mode=None)
        self._dispatcher = dispatcher

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial's configuration, None while nothing can start, ``FINISHED`` at the end."""
        config = self._dispatcher.next_config(trial_id)
        return Searcher.FINISHED if config is None and self._dispatcher.done else config

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing: the callback has passed on every message."""

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the ledger holds everything."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing."""


class RecordCallback(TrialProgressCallback):  # type: ignore[misc]  # Ray has no types
    """Tune's callback: passes messages on before the searcher is asked again, and faults with their reasons.

    It takes the place of Tune's own progress callback, which would keep every trial in memory.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self._dispatcher = dispatcher

    def on_trial_start(self, trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Note the start."""
        self._dispatcher.note_start(trial.trial_id)

    def on_trial_result(self, trial: Any, result: dict[str, Any], **info: Any) -> None:  # noqa: ARG002
        """Pass on a message; the ledger has its records when this returns, and may still be writing them."""
        self._dispatcher.receive(trial.trial_id, result)

    def on_trial_complete(self, trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Forget the order of a trial that has ended, because Tune keeps its trials to the end."""
        trial.config.pop("order", None)
        for name in [name for name in trial.evaluated_params if name.startswith("order")]:
            del trial.evaluated_params[name]

    def on_trial_recover(self, trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Note a fault after which Tune starts the trial again."""
        pause = self._dispatcher.restart(trial.trial_id, trial.num_failures, _reason(trial))
        trial.config["order"]["pause"] = pause

    def on_trial_error(self, trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Note a fault after which Tune does not start the trial again."""
        self._dispatcher.give_up(trial.trial_id, trial.num_failures, _reason(trial))

    def on_step_end(self, **info: Any) -> None:  # noqa: ARG002
        """End Tune if Ray is gone."""
        self._dispatcher.line.check()


class Ending(Stopper):  # type: ignore[misc]  # Ray has no types
    """Tune's stopper: stops all trials when the run ends early; they continue later from their checkpoints."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:  # noqa: ARG002 - the signature is Tune's
        """Stop no trial by itself."""
        return False

    def stop_all(self) -> bool:
        """Return whether the run ends."""
        return self._dispatcher.ends


def _reason(trial: Any) -> str:
    """Return the last exception in Tune's error file."""
    # trial.get_error() would read a copy that Tune makes later.
    path = trial.error_file
    text = Path(path).read_text(errors="replace") if path and Path(path).exists() else ""
    return reason_in(re.split(r"^Failure # \d+ .*$", text, flags=re.MULTILINE)[-1])
