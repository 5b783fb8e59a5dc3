"""Filling a tracker in a test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from topk_platform.records import Ledger
from topk_platform.tracking import Extras, TrackedStudy, Tracker
from topk_platform.tracking.feed import Feed
from topk_platform.tracking.mlflow.tracker import MlflowTracker
from topk_platform.tracking.trials import SearchTrials, study_result

__all__ = ["fill", "start_feed"]


def start_feed(
    folder: Path | None,
    ledger: Ledger,
    tracker: Tracker | None = None,
    *,
    search: SearchTrials = "all",
    stale: Collection[str] = (),
    pauses: Sequence[float] = (0.01,),
) -> Feed:
    """Return a started feed of a tracker, by default MLflow's database in ``folder``."""
    study = TrackedStudy(ledger.study, ledger.identity, folder)
    feed = Feed(tracker or MlflowTracker(), study, ledger, search, stale=stale, pauses=pauses)
    feed.start()
    return feed


def fill(feed: Feed, files: Mapping[str, str], extras: Callable[[], Extras] | None = None) -> None:
    """Hand over tables, and check that all is written."""
    feed.put_result(study_result(files, extras))
    assert feed.close() is None
