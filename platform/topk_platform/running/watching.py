"""The events of a run, and the progress that they add up to: for those who watch it, here and in other terminals."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from topk_platform.errors import StoreError
from topk_platform.protocol import Counts, Durations, Ended, StudyProgress
from topk_platform.records.states import ArmState, StudyState, TrialState, note_state
from topk_platform.records.storage.store import Store
from topk_platform.specs import Scalar, Trial, TrialRecord

__all__ = ["Event", "EventKind", "OnEvent", "Watch", "noting", "value_in_words", "values_in_words"]

EventKind = Literal["begun", "started", "ended", "again", "open", "cut", "progress"]
"""The kind of an event:

- ``begun``: the run began;
- ``started``: trials started;
- ``ended``: a trial ended and has a record;
- ``again``: a fault stopped trials, which will be tried again;
- ``open``: a fault stopped trials, which stay without a result for now;
- ``cut``: trials were cut off because the time is used up, a process could not train as planned, or an event could
  not be passed on;
- ``progress``: an epoch of a trial has ended; only the run's ``Watch`` gets this one.
"""
_EVENTS = 4  # how many of the last events are shown
_TRIALS = 6  # how many running trials are shown
_NOTE_SECONDS = 3.0


@dataclass(frozen=True)
class Event:
    """An event of a run.

    Args:
        kind: What happened.
        trials: The trials concerned; none when the run begins.
        record: The record of the trial that ended.
        why: The fault in words; when the run begins, why some recorded trials do not count, if any.
        epoch: How many epochs of the trials have ended.
        value: The selection metric after the last validated epoch, of an ensemble that of its first trial.

    Example:
        >>> Event("begun").kind
        'begun'
    """

    kind: EventKind
    trials: tuple[Trial, ...] = ()
    record: TrialRecord | None = None
    why: str = ""
    epoch: int = 0
    value: float | None = None


class Watch:
    """The progress of a running study.

    The driver's thread reports every event, which takes some microseconds. Any thread may ask for the state, which
    takes longer.

    Args:
        study: The study's name.
        progress: Its progress.
        durations: How long its trainings take; the driver keeps it up to date.
        slots: How many trials may run at once.
    """

    def __init__(
        self, study: str, progress: StudyProgress, durations: Durations | None = None, slots: int = 0
    ) -> None:
        self.progress, self.study, self.slots = progress, study, slots
        self._durations = durations or Durations()
        self._counts = {
            arm_id: Counts(arm.arm, arm.searched.values(), arm.confirmed.values())
            for arm_id, arm in progress.arms.items()
        }
        self._under_way: dict[str, TrialState] = {}
        self._events: deque[str] = deque(maxlen=_EVENTS)

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        if event.kind in ("started", "progress"):
            trial = event.trials[0]
            epochs, metric = trial.arm.recipe.epochs, trial.arm.metric
            state = TrialState(_trial_name(trial), event.epoch, epochs, metric, event.value)
            self._under_way[trial.key] = state
            return
        for trial in event.trials:
            self._under_way.pop(trial.key, None)
        leads = False
        if (record := event.record) is not None:
            leads = self._counts[record.trial.arm_id].add(record.trial.phase, Ended.from_record(record))
        if event.kind != "begun":
            self.news = _news(event, leads)
            self._events.append(f"{datetime.now(UTC):%H:%M:%S} {self.news}")

    def arm(self, arm_id: str) -> ArmState:
        """Return an arm's progress, by its ID."""
        arm = self.progress.arms[arm_id]
        return ArmState.of(
            arm.arm,
            self._counts[arm_id],
            left=arm.left + arm.along,
            running=len(arm.running),
            lost=len(arm.open),
            seconds=arm.trainings * self._durations.of(arm_id) / max(1, self._busy(arm_id)),
        )

    def _busy(self, arm_id: str) -> int:
        """Return how many workers an arm's trials take now."""
        arm = self.progress.arms[arm_id]
        return math.ceil(len(arm.running) / arm.arm.protocol.ensemble)

    @property
    def workers(self) -> int:
        """How many workers are busy now."""
        return sum(map(self._busy, self._counts))

    def close(self) -> None:
        """Take note that nothing runs any more; trials that were cut short did not end."""
        self._under_way.clear()

    def state(self) -> StudyState:
        """Return the study's progress."""
        return StudyState(
            study=self.study,
            arms=tuple(map(self.arm, self._counts)),
            workers=self.workers,
            slots=self.slots,
            seconds=self.progress.seconds(self._durations, self.slots),
            retries=self.progress.retries,
            events=tuple(self._events.copy()),
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            training=tuple(self._under_way.copy().values())[:_TRIALS],
        )


OnEvent = Callable[[Watch, Event], None]
"""Called with every event, and with the study's progress at that time."""


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


@contextmanager
def noting(store: Store, watch: Watch) -> Iterator[None]:
    """Write a study's progress to its store at once and every few seconds, for as long as the block lasts.

    If the store refuses, the next note tries again: notes are for people, while the ledger holds the results.

    Args:
        store: The study's folder.
        watch: The progress.
    """
    over = threading.Event()
    noted: StudyState | None = None

    def go_on() -> None:
        while not over.wait(_NOTE_SECONDS):
            note()

    def note() -> None:
        nonlocal noted
        now = watch.state()
        if (
            noted is not None and replace(now, when=noted.when) == noted
        ):  # each note may be a request to a cloud
            return
        with suppress(StoreError):
            note_state(store, now)
            noted = now

    note()  # at once, because the store may have the note of a run that was killed
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        watch.close()
        note()
