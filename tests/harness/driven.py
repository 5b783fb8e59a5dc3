"""Boards and whole runs driven in this process, with a function in place of training on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext

import pytest

from topk_platform.protocol import StudyProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.records.storage.store import Store
from topk_platform.running import loop
from topk_platform.running import tuner as tuning
from topk_platform.running.cluster import nodes
from topk_platform.running.cluster.lifeline import Cluster
from topk_platform.running.dispatcher import Dispatcher
from topk_platform.running.summary import Outcome
from topk_platform.running.watching import Event
from topk_platform.specs import Study, Trial, TrialRecord

__all__ = ["Train", "end_all", "replace_ray", "run_in_process"]

Train = Callable[[tuple[Trial, ...], Store], Iterable[TrialRecord]]
"""Returns the records of trials that start together, and may keep files in the study's folder."""


def end_all(progress: StudyProgress, end: Callable[[Trial], Ended]) -> Iterator[Trial]:
    """End each trial that a progress hands out, one start after another, and yield it."""
    while trials := progress.next_trials():
        for trial in trials:
            progress.end(trial, end(trial))
            yield trial


def run_in_process(patch: pytest.MonkeyPatch, train: Train) -> None:
    """Let ``topk_platform.run`` train here, within its budget, with neither Ray nor MLflow."""

    def tune(_study: Study, dispatcher: Dispatcher, *_options: object) -> Outcome:
        progress, limits = dispatcher.progress, dispatcher.limits
        while trials := progress.next_trials(lambda *start: not limits.against(*start)):
            limits.tried += len(trials)
            store = Store.open(dispatcher.order["folder"])
            for trial, record in zip(trials, train(trials, store), strict=True):
                dispatcher.keep(record.replace_versions(**trial.environment))
                progress.end(trial, Ended.from_record(record))
                dispatcher.outcome.ran += 1
                dispatcher.notify(Event("ended", (trial,), record))
        dispatcher.close()
        return dispatcher.outcome

    replace_ray(patch, tune)


def replace_ray(patch: pytest.MonkeyPatch, tune: Callable[..., Outcome]) -> None:
    """Call a function where ``topk_platform.run`` would hand its trials to Ray Tune; MLflow is left out."""
    patch.setattr(nodes, "on_cluster", lambda *_: nullcontext(Cluster(1)))
    patch.setattr(loop, "mlflow_of", lambda *_: None)
    patch.setattr(tuning, "tune_trials", tune)
