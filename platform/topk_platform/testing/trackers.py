"""The contract of trackers: the properties that a study relies on, also if it is resumed."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from topk_platform.tracking.tracker import (
    ArmResult,
    Dataset,
    Point,
    StudyResult,
    TrackedStudy,
    TrackedTrial,
    Tracker,
)

__all__ = ["TrackerContract"]

_DATA = Dataset("digits", "{}", "clean", "f")
_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class TrackerContract(ABC):
    """Tests of a tracker; subclass it in a test file, and define ``tracker`` and ``shown``.

    Example:
        >>> class TestMine(TrackerContract):  # doctest: +SKIP
        ...     def tracker(self, folder):
        ...         return MyTracker(str(folder))
        ...     def shown(self, folder):
        ...         return [entry["key"] for entry in read_my_files(folder)]
    """

    @abstractmethod
    def tracker(self, folder: Path) -> Tracker:
        """Return a new tracker.

        Args:
            folder: The folder of the store; every test has its own.
        """

    @abstractmethod
    def shown(self, folder: Path) -> Collection[str]:
        """Return the keys of the trials that people see in the tracker, each as often as they see it.

        Args:
            folder: The folder of the store.
        """

    def test_what_is_written_is_listed_when_the_study_is_opened_again(self) -> None:
        """A later run, in another process, need not write it again."""
        with _folder() as (folder, study):
            self._write(folder, study, *_TRIALS)
            assert set(self.tracker(folder).begin(study)) == {trial.key for trial in _TRIALS}
            assert Counter(self.shown(folder)) == Counter(trial.key for trial in _TRIALS)

    def test_it_says_of_no_trial_that_it_started_at_another_time(self) -> None:
        """A trial that started at another time than the ledger says is handed over again; others are left out."""
        with _folder() as (folder, study):
            self._write(folder, study, *_TRIALS)
            tracker = self.tracker(folder)
            list(tracker.begin(study))
            assert tracker.started().items() <= {trial.key: trial.began for trial in _TRIALS}.items()
            tracker.close()

    def test_a_trial_that_a_kill_cuts_off_is_not_listed_and_appears_once_in_the_end(self) -> None:
        """The kill comes while the tracker reads the trial's curve."""
        with _folder() as (folder, study):
            tracker = self.tracker(folder)
            assert not list(tracker.begin(study))
            tracker.trial_ended(_TRIALS[0])
            killed = replace(_TRIALS[1], curve=_Killed(_TRIALS[1].curve))
            try:
                tracker.trial_ended(killed)
            except _KillError:
                pass
            else:
                raise AssertionError("the tracker never read the trial's curve")
            assert self._write(folder, study, _TRIALS[1]) == {_TRIALS[0].key}
            assert Counter(self.shown(folder)) == Counter(trial.key for trial in _TRIALS[:2])

    def test_trials_that_are_removed_are_gone_and_can_be_written_again(self) -> None:
        """A failed trial that is trained again has the same key."""
        with _folder() as (folder, study):
            self._write(folder, study, *_TRIALS)
            first, *rest = _TRIALS
            tracker = self.tracker(folder)
            list(tracker.begin(study))
            tracker.remove([first.key])
            tracker.close()
            assert set(self.shown(folder)) == {trial.key for trial in rest}
            self._write(folder, study, replace(first, started=_MOMENT.replace(day=2)))
            assert Counter(self.shown(folder)) == Counter(trial.key for trial in _TRIALS)

    def test_the_same_results_may_come_again_and_other_ones_replace_them(self) -> None:
        """Neither case is an error, and the trials stay."""
        with _folder() as (folder, study):
            self._write(folder, study, *_TRIALS)
            for result in (_result("one"), _result("one"), _result("two")):
                tracker = self.tracker(folder)
                list(tracker.begin(study))
                tracker.study_ended(result)
                tracker.study_ended(result)
                tracker.close()
            assert Counter(self.shown(folder)) == Counter(trial.key for trial in _TRIALS)

    def test_it_can_be_closed_at_any_time(self) -> None:
        """It can be closed before it is opened, and twice."""
        with _folder() as (folder, study):
            tracker = self.tracker(folder)
            tracker.close()
            list(tracker.begin(study))
            tracker.close()
            tracker.close()

    def _write(self, folder: Path, study: TrackedStudy, *trials: TrackedTrial) -> set[str]:
        """Write trials with a new tracker; return the keys that it held before."""
        tracker = self.tracker(folder)
        held = set(tracker.begin(study))
        for trial in trials:
            if trial.key not in held:
                tracker.trial_ended(trial)
        tracker.close()
        return held


@contextmanager
def _folder() -> Iterator[tuple[Path, TrackedStudy]]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder), TrackedStudy("contract", "0a1b2c3d4e5f", Path(folder))


class _KillError(Exception):
    """The end of the process, as an exception."""


class _Killed(tuple[Point, ...]):
    """A curve that kills the process when its last point has been read."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Point]:
        yield from super().__iter__()
        _kill()


def _kill() -> NoReturn:
    raise _KillError


def _trial(key: str, number: int, seed: int) -> TrackedTrial:
    curve = tuple(
        Point(epoch, 1000 * epoch, {"train.loss": 1 / epoch, "validation.top3": 0.5}) for epoch in (1, 2)
    )
    return TrackedTrial(
        key=key,
        arm="clean/mlp/ldam",
        arm_id="a1",
        regime="clean",
        model="mlp",
        loss="ldam",
        phase="confirm" if seed else "search",
        number=number,
        seed=seed,
        status="completed" if seed else "diverged",
        reason="" if seed else "the loss is not finite",
        group=f"clean/mlp/ldam {'confirm' if seed else 'search'} {number}: margin=0.5",
        parameters={"margin": 0.5, "k": 3, "optimizer": "sgd"},
        metrics={"train_seconds": 1.0, "validation.top3": 0.5, **({"test.top3": 0.25} if seed else {})},
        curve=curve,
        started=_MOMENT,
        ended=_MOMENT.replace(minute=1),
        dataset=_DATA,
        config="{}",
        code_version="c",
    )


_TRIALS = (
    _trial("00aa11bb22cc33dd44ee", 0, 0),
    _trial("11aa11bb22cc33dd44ee", 0, 1),
    _trial("22aa11bb22cc33dd44ee", 0, 2),
)


def _result(text: str) -> StudyResult:
    arm = ArmResult(
        "clean/mlp/ldam",
        {"margin": "0.5"},
        {"test.top3.mean": 0.25, "test.top3.n": 2.0},
        "**clean/mlp/ldam**",
        _DATA,
    )
    return StudyResult({"table.md": text}, f"d{text}", {"a1": arm})
