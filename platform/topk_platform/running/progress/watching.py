"""The progress of a running study: updated by every event, and noted in its store for other terminals."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Self

from topk_platform.errors import StoreError
from topk_platform.protocol import ArmBoard, Board, Counts, Durations, Ended
from topk_platform.records import ArmState, GpuUse, Store, StudyState, TrialState, note_state, thinned
from topk_platform.running.machine.gpu_use import GpuSample
from topk_platform.running.progress.events import Event
from topk_platform.running.progress.repeating import Repeating
from topk_platform.specs import Scalar, Trial, TrialRecord

__all__ = ["Noting", "Watch", "value_in_words", "values_in_words"]

_EVENTS = 8  # how many of the last events are kept
_TRIALS = 20  # the most running trials that are shown
_NOTE_SECONDS = 3.0
_FRESH_SECONDS = 60.0  # for how many seconds a GPU's measurement counts


class _Arm:
    """Counts for one arm, updated event by event."""

    def __init__(self, board: ArmBoard) -> None:
        self.board = board
        self.counts = Counts(board.arm, board.searched.values(), board.confirmed.values())

    def state(self, durations: Durations, *, over: bool) -> ArmState:
        running = 0 if over else len(self.board.running)
        workers = max(1, math.ceil(running / self.board.arm.protocol.ensemble))
        return dataclasses.replace(
            ArmState.of(self.board.arm, self.counts, self.board.left + self.board.along),
            running=running,
            lost=len(self.board.open),
            seconds=self.board.trainings * durations.of(self.board.arm_id) / workers,
        )


class Watch:
    """The progress of a running study.

    The driver's thread reports every event, which takes some microseconds. Any thread may ask for the state, which
    takes longer.

    Args:
        study: The study's name.
        board: Its board.
        durations: How long its trainings take; the driver keeps it up to date.

    Attributes:
        study: The study's name.
        board: Its board.
    """

    def __init__(self, study: str, board: Board, durations: Durations | None = None) -> None:
        self.board, self.study, self._durations = board, study, durations or Durations()
        self._arms = {arm_id: _Arm(arm) for arm_id, arm in board.arms.items()}
        self._workers = self._slots = 0
        self._gpus = 0.0
        self._over = False
        self._samples: dict[str, tuple[float, GpuSample]] = {}
        self._under_way: dict[str, TrialState] = {}
        self._events: deque[tuple[datetime, Event, bool]] = deque(maxlen=_EVENTS)

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        self._workers = event.workers
        if event.kind == "begun":
            self._slots, self._gpus = event.slots, event.gpus
        self._follow(event)
        if event.kind == "progress":
            return
        leads = event.record is not None and self._count(event.record)
        if event.kind not in ("begun", "started"):  # starts are not news: there are as many as ends
            self._events.append((datetime.now(UTC), event, leads))

    def _count(self, record: TrialRecord) -> bool:
        """Count an ended trial; return whether it is the best of its arm so far."""
        return self._arms[record.trial.arm_id].counts.add(record.trial.phase, Ended.from_record(record))

    def _follow(self, event: Event) -> None:
        """Note how far the trials under way are, and how busy their GPUs are."""
        if event.sample is not None:
            self._samples[event.sample.uuid] = time.monotonic(), event.sample
        if event.kind in ("started", "progress"):
            self._under_way[event.trials[0].key] = _trial_state(event)
        else:
            for trial in event.trials:
                self._under_way.pop(trial.key, None)

    @property
    def news(self) -> str:
        """The last event in words."""
        return _news(*self._events[-1][1:])

    def arm(self, arm_id: str) -> ArmState:
        """Return an arm's progress, by its identity."""
        return self._arms[arm_id].state(self._durations, over=self._over)

    def close(self) -> None:
        """Take note that nothing runs any more, even if the board says so because the run was cut short."""
        self._workers, self._over = 0, True
        self._under_way.clear()

    def state(self) -> StudyState:
        """Return the study's progress."""
        states = tuple(arm.state(self._durations, over=self._over) for arm in self._arms.values())
        return StudyState(
            study=self.study,
            arms=states,
            workers=self._workers,
            slots=self._slots,
            seconds=self.board.seconds(self._durations, self._slots),
            again=self.board.again,
            events=tuple(
                f"{when:%H:%M:%S} {_news(event, leads)}" for when, event, leads in self._events.copy()
            ),
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            gpu_use=self._gpu_use(),
            training=tuple(self._under_way.copy().values())[:_TRIALS],
        )

    def _gpu_use(self) -> GpuUse | None:
        if not self._gpus:
            return None
        study = next(iter(self.board.arms.values())).study
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
    if event.record is not None:
        return _outcome(event.record, leads)
    name = f"{_trial_name(event.trials[0])} ({event.trials[0].key})"
    if event.kind == "cut":
        return f"{name} is cut off; the next run continues it from its checkpoint"
    return f"{name} {'is tried again' if event.kind == 'again' else 'has no result for now'}: {event.why}"


def _outcome(record: TrialRecord, leads: bool) -> str:
    metric = record.trial.arm.metric
    value = value_in_words(record.validation.get(metric), metric) if record.status == "completed" else ""
    best_ = (
        f", the best so far by {values_in_words(record.trial.values)}"
        if leads and record.trial.values
        else ""
    )
    why = f": {record.reason}" if record.reason else ""
    return f"{_trial_name(record.trial)} {record.status}{f', {value}' if value else ''}{best_}{why}"


def _trial_state(event: Event) -> TrialState:
    trial, curve = event.trials[0], thinned(event.curve)
    return TrialState(_trial_name(trial), event.epoch, trial.arm.recipe.epochs, trial.arm.metric, curve)


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
