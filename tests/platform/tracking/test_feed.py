"""The thread that fills a tracker while the tracker fails now and then."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from feeds import start_feed

from topk_platform import Study
from topk_platform.records import Ledger, Store
from topk_platform.specs import TrialRecord
from topk_platform.tracking import StudyResult, TrackedStudy, TrackedTrial, Tracker
from topk_platform.tracking.trials import study_result


class FailsOnce(Tracker):
    """A tracker that cannot be opened the first time."""

    title = "Failing"

    def __init__(self) -> None:
        self.failing, self.failed = threading.Event(), threading.Event()
        self.tries = 0
        self.results: list[StudyResult] = []

    def begin(self, study: TrackedStudy) -> Collection[str]:
        self.tries += 1
        if self.tries == 1:
            assert self.failing.wait(60)
            raise OSError("no route")
        return ()

    def remove(self, keys: Collection[str]) -> None:
        raise AssertionError("nothing is removed")

    def trial_ended(self, trial: TrackedTrial) -> None:
        raise AssertionError("no trial has ended")

    def study_ended(self, result: StudyResult) -> None:
        self.results.append(result)

    def close(self) -> None:
        self.failed.set()


def test_results_that_come_first_are_written_after_a_failure(tmp_path: Path) -> None:
    tracker = FailsOnce()
    feed = start_feed(None, Ledger.open(Store.open(tmp_path), "s"), tracker)
    result = study_result({"table.md": "# s"})
    feed.put_result(result)
    tracker.failing.set()
    assert tracker.failed.wait(60)
    assert feed.close() is None
    assert [given.files for given in tracker.results] == [result.files]


class Held(Tracker):
    """A tracker that keeps how trials ended, by their keys, and when they started where it has a clock."""

    title = "Held"

    def __init__(self, *, has_clock: bool = True) -> None:
        self.held: dict[str, TrackedTrial] = {}
        self.has_clock = has_clock

    def begin(self, study: TrackedStudy) -> Collection[str]:
        return [*self.held]

    def started(self) -> dict[str, int]:
        return {key: trial.began for key, trial in self.held.items()} if self.has_clock else {}

    def remove(self, keys: Collection[str]) -> None:
        for key in keys:
            del self.held[key]

    def trial_ended(self, trial: TrackedTrial) -> None:
        assert trial.key not in self.held
        self.held[trial.key] = trial

    def study_ended(self, result: StudyResult) -> None:
        raise AssertionError("there are no results")


def _train_again(ledger: Ledger, study: Study, failed: TrialRecord) -> TrialRecord:
    again = dataclasses.replace(failed, status="completed", started=failed.started + 60)
    with ledger.writing(study) as writer:
        writer.remove([failed.trial.key])
        writer.put(again)
    return again


@pytest.mark.parametrize(("has_clock", "shown"), [(True, "completed"), (False, "failed")])
def test_a_trial_that_was_trained_again_without_the_tracker_is_written_again(
    has_clock: bool, shown: str, tmp_path: Path, study: Study, record: Callable[..., TrialRecord]
) -> None:
    """As by `topk run --track none --retry-failed`. A tracker that does not know its trials' starts keeps them."""
    ledger, tracker = Ledger.open(Store.open(tmp_path), "s"), Held(has_clock=has_clock)
    failed, other = record(study, 0, status="failed"), record(study, 1)
    with ledger.writing(study) as writer:
        writer.put(failed)
        writer.put(other)
    assert start_feed(None, ledger, tracker).close() is None
    before = dict(tracker.held)
    _train_again(ledger, study, failed)
    for _ in range(2):
        assert start_feed(None, ledger, tracker).close() is None
        assert [trial.status for trial in tracker.held.values()].count("completed") == 1 + has_clock
    assert tracker.held[failed.trial.key].status == shown
    assert tracker.held[other.trial.key] is before[other.trial.key]


def test_a_trial_that_the_ledger_lacked_for_a_while_is_written_again(
    tmp_path: Path, study: Study, record: Callable[..., TrialRecord]
) -> None:
    """As after an interrupted run without trackers that had not yet trained the failed trial again."""
    ledger, tracker = Ledger.open(Store.open(tmp_path), "s"), Held()
    failed = record(study, 0, status="failed")
    with ledger.writing(study) as writer:
        writer.put(failed)
    assert start_feed(None, ledger, tracker).close() is None
    with ledger.writing(study) as writer:
        writer.remove([failed.trial.key])
    feed = start_feed(None, ledger, tracker)
    feed.put(_train_again(ledger, study, failed))
    assert feed.close() is None
    assert [trial.status for trial in tracker.held.values()] == ["completed"]
