"""The thread that fills a tracker while the tracker fails now and then."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

from feeds import start_feed

from topk_platform.records import Ledger, Store
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
