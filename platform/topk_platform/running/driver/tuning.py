"""One Ray Tune run over all arms: a pool of reused actors, no barrier between arms or phases."""

from __future__ import annotations

import logging
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from ray import tune
from ray.exceptions import OutOfMemoryError
from rich.console import Console

from topk_platform.errors import ChangedError
from topk_platform.protocol import Board
from topk_platform.running.cluster.capacity import trial_resources
from topk_platform.running.cluster.desk import Desk
from topk_platform.running.cluster.room import Room
from topk_platform.running.cluster.worker import TrialActor
from topk_platform.running.driver.assignments import Orders
from topk_platform.running.driver.conductor import Conductor
from topk_platform.running.driver.hooks import BoardSearcher, DesertedStopper, Listener
from topk_platform.running.driver.launching import Cluster, Launch
from topk_platform.running.driver.retries import PAUSES, Faults
from topk_platform.running.driver.starts import Starts
from topk_platform.running.own_ray.lifeline import LostRayError
from topk_platform.running.own_ray.scratch import scratch_folder
from topk_platform.running.progress.events import Event
from topk_platform.running.ray_internals import without_keys
from topk_platform.specs import Study, TrialRecord

__all__ = ["tune_trials"]

_REPORT_SECONDS = 2.0  # between two messages of a trial's progress
_MESSAGES_A_SECOND = 50  # messages of all trials together; each takes the driver a millisecond or two


def tune_trials(
    study: Study,
    board: Board,
    keep: Callable[[TrialRecord], None],
    notify: Callable[[Event], None],
    cluster: Cluster,
    launch: Launch,
) -> Faults:
    """Run the remaining trials and return the work that faults left undone.

    The run ends early after an interrupt, or if Ray is gone.

    Args:
        study: The study, which says what resources a trial needs.
        board: The study's state, brought up to date as trials end.
        keep: Called with every record, to store it.
        notify: Called with every event; for a record, after it was kept.
        cluster: The connected cluster.
        launch: The settings of the run.

    Raises:
        ChangedError: if a worker's code or data differ from those that the study was checked with; the trials that ran
            meanwhile have ended and are kept.
        Exception: the error that ``keep`` raised, once the running trials have ended; or the error that ``notify``
            raised, once they have been cut off.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    limit = math.inf if study.time_limit is None else 3600 * study.time_limit
    every = max(_REPORT_SECONDS, cluster.slots / _MESSAGES_A_SECOND)
    store = launch.store.at(study.name).address
    orders = Orders(store, launch.checkpoint_seconds, limit, every, study.gpus)
    starts = Starts(3600 * study.start_limit, Room(trial_resources(study)))
    conductor = Conductor(board, keep, notify, orders, PAUSES, launch.budget, starts)
    try:
        with scratch_folder() as scratch:
            _tune(study, conductor, cluster, scratch)
    except LostRayError as error:
        conductor.faults.ended = str(error)  # the next run continues the trials
    if stopped_by := conductor.broken or conductor.unheard:
        raise stopped_by
    if conductor.refusal:
        raise ChangedError(
            f"{conductor.refusal}. Ended trials are kept; once every process has the same code, data and environment, "
            "the same command goes on from here"
        )
    return conductor.faults


def _tune(study: Study, conductor: Conductor, cluster: Cluster, scratch: str) -> None:
    """Run Tune, and run it again while all remaining trials wait for a retry or for workers to start.

    Args:
        study: The study.
        conductor: Hands out the trials.
        cluster: The connected cluster.
        scratch: A folder for Tune's own files, from which nothing is ever restored.
    """
    desk = Desk()
    for round_ in count():
        conductor.begin_round()
        stopper = DesertedStopper(conductor)
        run_config = _run_config(Listener(conductor, cluster.line, desk), stopper, scratch, f"study-{round_}")
        tuner = _tuner(study, BoardSearcher(conductor, desk), cluster.slots, run_config=run_config)
        with _own_interrupts(), without_keys():
            _fit(tuner)
        pause = conductor.wait
        if conductor.done or (pause is None and not stopper.stopped):
            break
        cluster.line.sleep(pause or 0.0)
    desk.close()  # not after an error: then the desk ends with the driver, and a lost Ray would not answer


def _fit(tuner: tune.Tuner) -> None:
    """Run Tune; raise ``LostRayError`` if Ray has killed processes because a machine was low on memory.

    The killed processes may include the actors that all trials share, so this Ray cannot be relied on.
    """
    try:
        tuner.fit()
    except RuntimeError as error:
        if not isinstance(error.__cause__, OutOfMemoryError):
            raise
        killed = str(error.__cause__).partition("\n")[0].rstrip(". ")
        raise LostRayError(f"{killed}; use fewer --workers, or end other programs") from error


def _tuner(study: Study, searcher: BoardSearcher, slots: int, *, run_config: tune.RunConfig) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(TrialActor, tune.PlacementGroupFactory([trial_resources(study)])),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,
            max_concurrent_trials=slots,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=run_config,
    )


def _run_config(listener: Listener, stopper: DesertedStopper, scratch: str, name: str) -> tune.RunConfig:
    return tune.RunConfig(
        name=name,
        storage_path=scratch,
        callbacks=[listener],
        stop=stopper,
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
        verbose=0,
        progress_reporter=_Silent() if Console().is_jupyter else None,
    )


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
