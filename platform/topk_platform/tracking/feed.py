"""The thread that fills a tracker from the ledger, so that a tracker neither stops nor delays a study."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from topk_platform.errors import reason
from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.table.schema import epoch_rows, trial_row
from topk_platform.specs import TrialRecord
from topk_platform.tracking.tracker import Extras, StudyResult, TrackedStudy, TrackedTrial, Tracker
from topk_platform.tracking.trials import SearchTrials, listed, read_trials, started, tracked_trial

__all__ = ["Feed"]

_PAUSES = (5.0, 15.0, 60.0, 300.0)
_STILL_SECONDS = 60.0
_NOTHING = StudyResult({}, "")
_LOG = logging.getLogger("topk_platform")

_Item = TrackedTrial | StudyResult | None
"""An ended trial, the study's results, or None for the end."""


class Feed(threading.Thread):
    """A thread that fills a tracker with a study's trials, as they end, and with its results.

    The thread first brings the tracker up to date with the ledger. If the tracker fails, a warning says so at once, the
    study goes on, and the thread tries again with growing pauses. Trials that the tracker missed are filled in from the
    ledger, at the latest by the next run or by :func:`~topk_platform.tracking.sync`.

    Args:
        tracker: The tracker.
        study: The study.
        ledger: The study's ledger.
        search: Which search trials the tracker shows.
        networks: Whether confirmations come with their networks.
        stale: The keys of trials that are written again, because the ledger no longer has what the tracker shows.
        pauses: The seconds before each further try; the last one repeats.

    Attributes:
        error: The error of the last try; None if the tracker works.
    """

    def __init__(
        self,
        tracker: Tracker,
        study: TrackedStudy,
        ledger: Ledger,
        search: SearchTrials = "all",
        *,
        networks: bool = True,
        stale: Collection[str] = (),
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        super().__init__(name=tracker.title, daemon=True)
        self.tracker = tracker
        self.ledger = ledger
        self.error: Exception | None = None
        self._study = replace(study, progressed=self._progressed)
        self._search: SearchTrials = search
        self._networks = networks
        self._stale = set(stale)
        self._pauses = pauses
        self._closing = threading.Event()
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._result: StudyResult | None = None
        self._written: set[str] = set()
        self._starts: dict[str, int] = {}
        self._steps = 0
        self._drawing = False

    def put(self, record: TrialRecord) -> None:
        """Hand over an ended trial that is in the ledger, without waiting for the tracker."""
        if record.trial.phase == "confirm" or self._search == "all":
            row, epochs = trial_row(record), epoch_rows(record)
            self._queue.put(tracked_trial(row, epochs, self.ledger.store, networks=self._networks))

    def put_result(self, result: StudyResult) -> None:
        """Hand over the study's results, after all trials, without waiting for the tracker."""
        extras = None if result.extras is None else partial(self._make, result.extras)
        self._queue.put(replace(result, extras=extras))

    def _make(self, extras: Callable[[], Extras | None]) -> Extras | None:
        self._drawing = True
        try:
            return extras()
        finally:
            self._drawing = False

    def close(self, patience: float = _STILL_SECONDS) -> Exception | None:
        """Wait until all is written, or until one more try has failed; return the error, if any.

        Args:
            patience: How many seconds to wait while the tracker makes no progress. After that, the error is returned,
                or a ``TimeoutError`` if there is none.
        """
        self._closing.set()
        self._queue.put(None)
        while self.is_alive():
            before = self._steps
            self.join(patience)
            if self.is_alive() and self._steps == before and not self._drawing:
                return self.error or TimeoutError(f"it has made no progress for {patience:g} s")
        return self.error

    def run(self) -> None:
        """Fill in the trials that the tracker lacks, then write those that are handed over, until closed."""
        item = self._queue.get()
        failures = 0
        while True:
            last = self._closing.is_set()
            try:
                self._begin()
                self.error = None
                self._stream(item)
            except Exception as error:  # noqa: BLE001 - no tracker's failure may stop a study; close() returns it
                self._failed(error)
            else:
                self._close_tracker()
                return
            if last:
                return
            self._closing.wait(self._pauses[min(failures, len(self._pauses) - 1)])
            failures += 1
            if isinstance(item, TrackedTrial):
                item = _NOTHING  # it is filled in from the ledger
            if item is not None:
                item = self._result or item

    def _failed(self, error: Exception) -> None:
        if self.error is None:
            _LOG.warning("%s is behind and is tried again: %s", self.tracker.title, reason(error))
        self.error = error
        self._close_tracker()

    def _close_tracker(self) -> None:
        with suppress(Exception):  # all is written, or the tracker has failed and may fail to close too
            self.tracker.close()

    def _begin(self) -> None:
        self._written.clear()
        for key in self.tracker.begin(self._study):
            self._written.add(key)
            self._progressed()
        self._starts = dict(self.tracker.started())
        shown, hidden = listed(self.ledger, self._search)
        self._remove(self._written & (self._stale | hidden | self._replaced()))
        self._stale.clear()
        self._fill_in(shown)

    def _replaced(self) -> set[str]:
        """Return the keys of trials that were trained again while the tracker was not attached."""
        now = started(self.ledger) if self._starts else {}
        return {key for key, before in self._starts.items() if now.get(key, before) != before}

    def _remove(self, keys: set[str]) -> None:
        if keys:
            self.tracker.remove(keys)
            self._written -= keys
            for key in keys:
                self._starts.pop(key, None)
            self._progressed()

    def _fill_in(self, shown: set[str]) -> None:
        for trial in read_trials(self.ledger, shown - self._written, networks=self._networks):
            self._write(trial)

    def _stream(self, item: _Item) -> None:
        while item is not None:
            if isinstance(item, TrackedTrial):
                self._write(item)
            elif item is not _NOTHING:
                self._end(item)
            item = self._queue.get()

    def _write(self, trial: TrackedTrial) -> None:
        # The ledger lacked the trial at the beginning, or it would have been removed there.
        if self._starts.get(trial.key, trial.began) != trial.began:
            self._remove(self._written & {trial.key})
        if trial.key not in self._written:
            self.tracker.trial_ended(trial)
            self._written.add(trial.key)
            self._progressed()

    def _end(self, result: StudyResult) -> None:
        self._result = result
        if self._search == "best":  # only now it is known which trials are the best
            shown, hidden = listed(self.ledger, self._search)
            self._remove(self._written & hidden)
            self._fill_in(shown)
        self.tracker.study_ended(result)
        self._progressed()

    def _progressed(self) -> None:
        self._steps += 1
