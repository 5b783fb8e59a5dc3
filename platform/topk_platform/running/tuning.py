"""Ray Tune runs what is missing of a study: a trial of Tune is a trial of ours, or one of its ensembles."""

from __future__ import annotations

import logging
import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray import tune
from ray.exceptions import OutOfMemoryError
from rich.console import Console

from topk_platform.data import data_folder
from topk_platform.errors import ChangedError
from topk_platform.protocol import StudyProgress
from topk_platform.running import searcher
from topk_platform.running.budget import Budget
from topk_platform.running.cluster.capacity import trial_resources
from topk_platform.running.cluster.session import Cluster
from topk_platform.running.events import Event, Faults
from topk_platform.running.options import RunOptions
from topk_platform.running.own_ray.lifeline import LostRayError
from topk_platform.running.own_ray.scratch import scratch_folder
from topk_platform.running.own_ray.variables import in_variables
from topk_platform.running.ray_internals import without_keys
from topk_platform.running.searcher import BoardSearcher, Dispatcher, Ending, RecordCallback
from topk_platform.running.trainable import TrialTrainable
from topk_platform.specs import Study, TrialRecord

__all__ = ["tune_trials"]

_REPORT_SECONDS = 0.25  # between two epochs of a trial that are reported
_MESSAGES_A_SECOND = 50  # of all trials together; each takes the driver a millisecond or two
_LONGEST_NAME = 100  # of an arm in the name of a folder
# Tune's state is never read again; a process that does not answer when the run ends early is killed after some seconds.
_TUNES = {"TUNE_GLOBAL_CHECKPOINT_S": "86400", "TUNE_FORCE_TRIAL_CLEANUP_S": "10"}


def tune_trials(
    study: Study,
    board: StudyProgress,
    keep: Callable[[TrialRecord], None],
    notify: Callable[[Event], None],
    cluster: Cluster,
    budget: Budget,
    store: str,
    options: RunOptions,
    callbacks: Sequence[Any] = (),
) -> Faults:
    """Run the remaining trials and return the work that faults left undone.

    The run ends early after an interrupt, or if Ray is gone.

    Args:
        study: The study, which says what resources a trial needs.
        board: The study's state, brought up to date as trials end.
        keep: Called with every record, to store it.
        notify: Called with every event; for a record, after it was kept.
        cluster: The connected cluster.
        budget: The limits of the run.
        store: The URI of the study's folder.
        options: The options of the run.
        callbacks: More callbacks of Tune.

    Raises:
        ChangedError: if a worker's code or data differ from those that the study was checked with; ended trials are
            kept.
        Exception: the error that ``keep`` or ``notify`` raised, once the running trials have been cut off.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    order = {
        "store": store,
        "data": str(data_folder()),
        "checkpoint_seconds": options.checkpoints,
        "time_limit": math.inf if study.time_limit is None else 3600 * study.time_limit,
        "start_limit": 3600 * study.start_limit,
        "report_seconds": max(_REPORT_SECONDS, cluster.slots / _MESSAGES_A_SECOND),
        "share": study.gpus,
    }
    dispatcher = Dispatcher(board, keep, notify, order, budget, cluster.line)
    try:
        with scratch_folder() as scratch, _own_interrupts(), without_keys(), in_variables(_TUNES):
            folder = Path(options.tensorboard or scratch).expanduser().absolute()
            more = [*callbacks, *_tunes_callbacks(options)]
            _fit(_tuner(study, dispatcher, cluster.slots, more, str(folder)))
    except LostRayError as error:
        dispatcher.faults.ended = str(error)  # the next run continues the trials
    finally:
        dispatcher.close()
    if dispatcher.error is not None:
        raise dispatcher.error
    if dispatcher.refusal:
        raise ChangedError(
            f"{dispatcher.refusal}. Ended trials are kept; once every process has the same code, data and environment, "
            "the same command goes on from here"
        )
    return dispatcher.faults


def _tuner(
    study: Study, dispatcher: Dispatcher, slots: int, callbacks: Sequence[Any], folder: str
) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(TrialTrainable, tune.PlacementGroupFactory([trial_resources(study)])),
        tune_config=tune.TuneConfig(
            search_alg=BoardSearcher(dispatcher),
            num_samples=-1,
            max_concurrent_trials=slots,
            reuse_actors=True,
            trial_dirname_creator=_folder_of,
        ),
        run_config=tune.RunConfig(
            name=study.name,
            storage_path=folder,
            callbacks=[RecordCallback(dispatcher), *callbacks],
            stop=Ending(dispatcher),
            failure_config=tune.FailureConfig(max_failures=len(searcher.PAUSES)),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            verbose=0,
            progress_reporter=_Silent() if Console().is_jupyter else None,
        ),
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


def _fit(tuner: tune.Tuner) -> None:
    """Run Tune; raise ``LostRayError`` if Ray has killed its processes because the driver's machine was low on memory.

    The killed processes may include those that all trials share, so this Ray cannot be relied on.
    """
    try:
        tuner.fit()
    except RuntimeError as error:
        if not isinstance(error.__cause__, OutOfMemoryError):
            raise
        killed = str(error.__cause__).partition("\n")[0].rstrip(". ")
        raise LostRayError(f"{killed}; use fewer --workers, or end other programs") from error


class _Silent(tune.ProgressReporter):  # type: ignore[misc]  # Ray has no types
    """Reports nothing: in a notebook Tune's own reporter would clear the cell with the study's progress."""

    def setup(self, *_arguments: Any, **_more: Any) -> None: ...

    def should_report(self, *_arguments: Any, **_more: Any) -> bool:
        return False

    def report(self, *_arguments: Any, **_more: Any) -> None: ...


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which Tune's ``fit`` replaces and does not restore."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
