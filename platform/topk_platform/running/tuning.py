"""One Ray Tune run over all arms: a pool of reused actors, no barrier between arms or phases."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ray import tune

from topk_platform.errors import ChangedError
from topk_platform.running.capacity import trial_resources
from topk_platform.running.conductor import BoardSearcher, Conductor, LossListener
from topk_platform.running.worker import TrialActor
from topk_platform.search import Board
from topk_platform.specs import Study, TrialRecord

__all__ = ["tune_trials"]


def tune_trials(
    study: Study,
    board: Board,
    keep: Callable[[TrialRecord], None],
    tell: Callable[[TrialRecord | None], None],
    store: str,
    slots: int,
    scratch: str,
    checkpoint_seconds: float,
) -> None:
    """Run every trial that the board still wants, or until interrupted.

    Args:
        study: Says what a trial needs.
        board: The study's state, brought up to date as trials end.
        keep: Called with every record, to write it down.
        tell: Called with it afterwards, and with None when a process was lost.
        store: The URI of the study's folder.
        slots: How many trials run at once.
        scratch: A folder for Tune's own files, which nothing is ever restored from.
        checkpoint_seconds: The least time between two checkpoints of a trial.

    Raises:
        ChangedError: if a worker's code or data are not those that the study was checked with; the trials that ran
            meanwhile have ended and are kept.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    conductor = Conductor(board, keep, tell, store, checkpoint_seconds)
    tuner = tune.Tuner(
        tune.with_resources(TrialActor, tune.PlacementGroupFactory([trial_resources(study)])),
        tune_config=tune.TuneConfig(
            search_alg=BoardSearcher(conductor),
            num_samples=-1,
            max_concurrent_trials=slots,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="study",
            storage_path=scratch,
            callbacks=[LossListener(conductor)],
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            verbose=0,
        ),
    )
    with _own_interrupts():
        tuner.fit()
    if conductor.refusal:
        raise ChangedError(
            f"{conductor.refusal}. What had ended is kept; once every process finds the same, the same command goes on "
            "from here"
        )


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Take back Ctrl-C, which Tune's ``fit`` keeps to itself when it has ended without one."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
