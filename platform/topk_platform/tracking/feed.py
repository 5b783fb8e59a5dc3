"""The thread that fills MLflow from the ledger, so that MLflow neither stops nor delays a study."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from topk_platform.errors import reason
from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.table.rows import Row
from topk_platform.records.table.schema import epoch_rows, trial_row
from topk_platform.specs import TrialRecord
from topk_platform.tracking.trials import read_trials, started

if TYPE_CHECKING:
    from topk_platform.tracking.writing import Experiment

__all__ = ["Feed", "Pictures"]

Pictures = Callable[[], Mapping[str, bytes]]
"""Makes the report and the plots, by file name, which takes seconds or minutes."""

_PAUSES = (5.0, 15.0, 60.0, 300.0)
_STILL_SECONDS = 60.0
_DEFAULTS = {
    # By default MLflow waits two minutes for an answer and tries seven times, which is too long at the end of a study.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # A connection that was made while the disk was read-only would stay read-only, so each use makes a new one.
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",
    # Otherwise it prints every run's address, with the server's password if the address has one.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_LOG = logging.getLogger("topk_platform")


class _Trial(NamedTuple):
    row: Row
    epochs: Sequence[Row]


class _Tables(NamedTuple):
    files: Mapping[str, str]
    pictures: Callable[[], Mapping[str, bytes] | None] | None


class Feed(threading.Thread):
    """A thread that fills MLflow with a study's trials, as they end, and with its results.

    The thread first brings MLflow up to date with the ledger. If MLflow fails, a warning says so at once, the study
    goes on, and the thread tries again with growing pauses. Trials that MLflow missed are filled in from the ledger, at
    the latest by the next run or by :func:`~topk_platform.tracking.sync`.

    Args:
        uri: MLflow's tracking URI.
        ledger: The study's ledger.
        folder: The store's folder if it is on this machine.
        stale: The keys of trials that are written again, because the ledger no longer has what MLflow shows.
        pauses: The seconds before each further try; the last one repeats.

    Attributes:
        error: The error of the last try; None if MLflow works.
    """

    def __init__(
        self,
        uri: str,
        ledger: Ledger,
        folder: Path | None = None,
        *,
        stale: Collection[str] = (),
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        super().__init__(name="MLflow", daemon=True)
        self.ledger = ledger
        self.error: Exception | None = None
        self._uri, self._folder = uri, folder
        self._stale = set(stale)
        self._pauses = pauses
        self._closing = threading.Event()
        self._queue: queue.SimpleQueue[_Trial | _Tables | None] = queue.SimpleQueue()
        self._tables: _Tables | None = None
        self._written: set[str] = set()
        self._steps = 0
        self._drawing = False

    def put(self, record: TrialRecord) -> None:
        """Hand over an ended trial that is in the ledger, without waiting for MLflow."""
        self._queue.put(_Trial(trial_row(record), epoch_rows(record)))

    def put_files(self, files: Mapping[str, str], pictures: Pictures | None = None) -> None:
        """Hand over the study's tables, after all trials, without waiting for MLflow.

        Args:
            files: The text files of the tables, by name.
            pictures: Makes the report and the plots; if it fails, a warning says so, and MLflow gets none.
        """
        drawn = None if pictures is None else cache(lambda: self._drawn(pictures))
        self._queue.put(_Tables(files, drawn))

    def _drawn(self, pictures: Pictures) -> Mapping[str, bytes] | None:
        self._drawing = True
        try:
            return pictures()
        except Exception as error:  # noqa: BLE001 - a plot may raise any error, and the study is done
            _LOG.warning("MLflow gets no report and no plots: %s", reason(error))
            return None
        finally:
            self._drawing = False

    def close(self, patience: float | None = None) -> str:
        """Wait until all is written, or until one more try has failed; return what failed, in words, or nothing.

        Args:
            patience: How many seconds to wait while MLflow makes no progress; a minute by default.
        """
        patience = _STILL_SECONDS if patience is None else patience
        self._closing.set()
        self._queue.put(None)
        error = None
        while self.is_alive() and error is None:
            before = self._steps
            self.join(patience)
            if self.is_alive() and self._steps == before and not self._drawing:
                error = self.error or TimeoutError(f"it has made no progress for {patience:g} s")
        error = error or self.error
        return "" if error is None else f"MLflow is behind: {reason(error)}"

    def run(self) -> None:
        """Fill in the trials that MLflow lacks, then write those that are handed over, until closed."""
        item = self._queue.get()
        failures = 0
        while True:
            last = self._closing.is_set()
            try:
                experiment = self._begin()
                self.error = None
                self._stream(experiment, item)
            except Exception as error:  # noqa: BLE001 - no failure of MLflow may stop a study; close() returns it
                self._failed(error)
            else:
                return
            if last:
                return
            self._closing.wait(self._pauses[min(failures, len(self._pauses) - 1)])
            failures += 1
            if isinstance(item, _Trial):
                item = _Tables({}, None)  # the trial is filled in from the ledger
            if item is not None:
                item = self._tables or item

    def _failed(self, error: Exception) -> None:
        if self.error is None:
            _LOG.warning("MLflow is behind and is tried again: %s", reason(error))
        self.error = error

    def _begin(self) -> Experiment:
        """Open the study's experiment, and bring it up to date with the ledger."""
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        from topk_platform.tracking.writing import Experiment  # noqa: PLC0415 - seconds, in this thread

        experiment = Experiment(self.ledger, self._uri, self._folder, self._progressed)
        self._written = set(experiment.complete())
        now = started(self.ledger)
        replaced = {key for key, before in experiment.started.items() if now.get(key, before) != before}
        self._remove(experiment, self._written & (self._stale | replaced))
        self._stale.clear()
        for row, epochs in read_trials(self.ledger, set(self.ledger.keys()) - self._written):
            self._write(experiment, row, epochs)
        return experiment

    def _remove(self, experiment: Experiment, keys: set[str]) -> None:
        experiment.remove(keys)
        self._written -= keys

    def _stream(self, experiment: Experiment, item: _Trial | _Tables | None) -> None:
        while item is not None:
            if isinstance(item, _Trial):
                self._write(experiment, item.row, item.epochs)
            elif item.files:
                self._tables = item
                experiment.write_tables(*item)
                self._progressed()
            item = self._queue.get()

    def _write(self, experiment: Experiment, row: Row, epochs: Sequence[Row]) -> None:
        key, began = row["key"], int(row["started"].timestamp())
        # If the ledger lacked the trial at the beginning, MLflow may have an earlier one.
        if experiment.started.get(key, began) != began:
            self._remove(experiment, self._written & {key})
        if key not in self._written:
            experiment.write_trial(row, epochs)
            self._written.add(key)
            self._progressed()

    def _progressed(self) -> None:
        self._steps += 1
