"""The events of a run, and the progress that they add up to: for those who watch it, here and in other terminals."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Self

from topk_platform.errors import StoreError
from topk_platform.protocol import Counts, Durations, Ended, StudyProgress
from topk_platform.records import (
    ArmState,
    GpuUse,
    OpenTrial,
    Store,
    StudyState,
    TrialState,
    note_state,
    thinned,
)
from topk_platform.running.cluster.machine import GpuSample
from topk_platform.specs import Scalar, Trial, TrialRecord

__all__ = [
    "Event",
    "EventKind",
    "Faults",
    "Noting",
    "Repeating",
    "Watch",
    "value_in_words",
    "values_in_words",
]

EventKind = Literal["begun", "started", "ended", "again", "open", "cut", "progress"]
"""The kind of an event:

- ``begun``: the run began;
- ``started``: trials started;
- ``ended``: a trial ended and has a record;
- ``again``: a fault stopped trials, which will be tried again;
- ``open``: a fault stopped trials, which stay without a result for now;
- ``cut``: trials were cut off because the time is used up, or an event could not be passed on;
- ``progress``: a trial reported its epoch, its curve and how busy its GPU is; only the run's ``Watch`` gets this one.
"""
_EVENTS = 8  # how many of the last events are kept
_TRIALS = 20  # the most running trials that are shown
_NOTE_SECONDS = 3.0
_FRESH_SECONDS = 60.0  # for how many seconds a GPU's measurement counts


@dataclass(frozen=True)
class Event:
    """An event of a run.

    Args:
        kind: What happened.
        trials: The trials concerned; none when the run begins.
        record: The record of the trial that ended.
        why: The fault in words; when the run begins, why some recorded trials do not count, if any.
        workers: How many workers are busy now.
        slots: When the run begins: how many trials may run at once.
        gpus: When the run begins: how many GPUs the cluster has.
        sample: How busy the trial's GPU is, if this was measured.
        epoch: How many epochs of the trials have ended.
        curve: The selection metric after each validated epoch; for an ensemble, that of its first trial.

    Example:
        >>> Event("begun", slots=2).kind
        'begun'
    """

    kind: EventKind
    trials: tuple[Trial, ...] = ()
    record: TrialRecord | None = None
    why: str = ""
    workers: int = 0
    slots: int = 0
    gpus: float = 0.0
    sample: GpuSample | None = None
    epoch: int = 0
    curve: tuple[float, ...] = ()


@dataclass
class Faults:
    """The work that the faults of a run left undone.

    Args:
        open: The trials left without a result after all tries.
        unsaved: Why the networks of some trials could not be kept, by the trials' keys; their results are kept.
        ended: Why the run ended before all trials had been tried; empty if it did not.
    """

    open: list[OpenTrial] = field(default_factory=list)
    unsaved: dict[str, str] = field(default_factory=dict)
    ended: str = ""


class Watch:
    """The progress of a running study.

    The driver's thread reports every event, which takes some microseconds. Any thread may ask for the state, which
    takes longer.

    Args:
        study: The study's name.
        progress: Its progress.
        durations: How long its trainings take; the driver keeps it up to date.
    """

    def __init__(self, study: str, progress: StudyProgress, durations: Durations | None = None) -> None:
        self.progress, self.study, self._durations = progress, study, durations or Durations()
        self._counts = {
            arm_id: Counts(arm.arm, arm.searched.values(), arm.confirmed.values())
            for arm_id, arm in progress.arms.items()
        }
        self._workers = self._slots = 0
        self._gpus = 0.0
        self._over = False
        self._samples: dict[str, tuple[float, GpuSample]] = {}
        self._under_way: dict[str, TrialState] = {}
        self._events: deque[tuple[datetime, str]] = deque(maxlen=_EVENTS)

    def __call__(self, event: Event) -> None:
        """Take note of an event: of a record, of how far the trials under way are, and how busy their GPUs are."""
        self._workers = event.workers
        if event.kind == "begun":
            self._slots, self._gpus = event.slots, event.gpus
        if event.sample is not None:
            self._samples[event.sample.uuid] = time.monotonic(), event.sample
        if event.kind in ("started", "progress"):
            trial, curve = event.trials[0], thinned(event.curve)
            name, epochs = _trial_name(trial), trial.arm.recipe.epochs
            self._under_way[trial.key] = TrialState(name, event.epoch, epochs, trial.arm.metric, curve)
        else:
            for trial in event.trials:
                self._under_way.pop(trial.key, None)
        leads = False
        if (record := event.record) is not None:
            leads = self._counts[record.trial.arm_id].add(record.trial.phase, Ended.from_record(record))
        if event.kind not in ("begun", "started", "progress"):  # starts are as many as ends
            self._events.append((datetime.now(UTC), _news(event, leads)))

    @property
    def news(self) -> str:
        """The last event in words."""
        return self._events[-1][1]

    def arm(self, arm_id: str) -> ArmState:
        """Return an arm's progress, by its identity."""
        arm = self.progress.arms[arm_id]
        running = 0 if self._over else len(arm.running)
        workers = max(1, math.ceil(running / arm.arm.protocol.ensemble))
        return dataclasses.replace(
            ArmState.of(arm.arm, self._counts[arm_id], arm.left + arm.along),
            running=running,
            lost=len(arm.open),
            seconds=arm.trainings * self._durations.of(arm_id) / workers,
        )

    def close(self) -> None:
        """Take note that nothing runs any more, even if the progress says so because the run was cut short."""
        self._workers, self._over = 0, True
        self._under_way.clear()

    def state(self) -> StudyState:
        """Return the study's progress."""
        return StudyState(
            study=self.study,
            arms=tuple(map(self.arm, self._counts)),
            workers=self._workers,
            slots=self._slots,
            seconds=self.progress.seconds(self._durations, self._slots),
            again=self.progress.again,
            events=tuple(f"{when:%H:%M:%S} {news}" for when, news in self._events.copy()),
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            gpu_use=self._gpu_use(),
            training=tuple(self._under_way.copy().values())[:_TRIALS],
        )

    def _gpu_use(self) -> GpuUse | None:
        if not self._gpus:
            return None
        study = next(iter(self.progress.arms.values())).study
        used = self._workers * study.gpus if study.device == "cuda" else 0.0
        since = time.monotonic() - _FRESH_SECONDS
        fresh = [sample for when, sample in self._samples.copy().values() if when >= since and self._workers]
        return GpuUse(
            used,
            max(used, self._gpus),  # because a cluster may have grown since the run began
            busy=sum(sample.busy for sample in fresh) / len(fresh) if fresh else None,
            memory_used=sum(sample.memory_used for sample in fresh),
            memory=sum(sample.memory for sample in fresh),
        )


def _news(event: Event, leads: bool) -> str:
    """Return an event in words."""
    if event.record is None:
        name = f"{_trial_name(event.trials[0])} ({event.trials[0].key})"
        if event.kind == "cut":
            return f"{name} is cut off; the next run continues it from its checkpoint"
        return f"{name} {'is tried again' if event.kind == 'again' else 'has no result for now'}: {event.why}"
    record, metric = event.record, event.record.trial.arm.metric
    value = value_in_words(record.validation.get(metric), metric) if record.status == "completed" else ""
    values = values_in_words(record.trial.values) if leads else ""
    parts = [f"{_trial_name(record.trial)} {record.status}", value, values and f"the best so far by {values}"]
    return ", ".join(filter(None, parts)) + (f": {record.reason}" if record.reason else "")


def _trial_name(trial: Trial) -> str:
    number = f"search {trial.number}" if trial.phase == "search" else f"seed {trial.seed}"
    return f"{trial.arm.name} {number}"


def value_in_words(value: float | None, metric: str) -> str:
    """Return a validation value as it is shown: an accuracy in percent.

    Example:
        >>> value_in_words(0.8871, "top5"), value_in_words(None, "top5")
        ('top5 88.7 %', '')
    """
    return "" if value is None else f"{metric} {100 * value:.1f} %"


def values_in_words(values: Mapping[str, Scalar]) -> str:
    """Return a trial's chosen values in one line.

    Example:
        >>> values_in_words({"learning_rate": 0.0125, "samples": 10})
        'learning_rate=0.0125, samples=10'
    """
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in values.items()
    )


class Repeating:
    """Calls a function every few seconds in a thread of its own, for as long as the block lasts.

    Args:
        seconds: The pause before every call.
        act: The function.
    """

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._seconds, self._act, self._over = seconds, act, threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._over.wait(self._seconds):
            self._act()


class Noting:
    """Writes a study's progress to its store at once and every few seconds, for as long as the block lasts.

    If the store refuses, the next note tries again: notes are for people, while the ledger holds the results.

    Args:
        store: The study's folder.
        watch: The progress.
    """

    def __init__(self, store: Store, watch: Watch) -> None:
        self._store, self._watch = store, watch
        self._repeating = Repeating(_NOTE_SECONDS, self._note)
        self._noted: StudyState | None = None

    def __enter__(self) -> Self:
        self._note()  # at once, because the store may have the note of a run that was killed
        self._repeating.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._repeating.__exit__()
        self._watch.close()
        self._note()

    def _note(self) -> None:
        now = self._watch.state()
        if self._noted == dataclasses.replace(now, when=self._noted.when if self._noted else ""):
            return
        with suppress(StoreError):
            note_state(self._store, now)
            self._noted = now
