"""Where a study's MLflow is, and the thread that fills it, so that MLflow neither stops nor delays a study."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from topk_platform.errors import UserError, masked, reason
from topk_platform.records.ledger import Ledger, nothing_of
from topk_platform.records.rows import RowViews
from topk_platform.records.run_notes import Unfinished
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import epoch_rows, trial_row
from topk_platform.specs import TrialRecord
from topk_platform.specs.checks import check_not_blank
from topk_platform.tracking.trials import LEDGER, arms_of

__all__ = [
    "SQLITE",
    "Feed",
    "Pictures",
    "check_tracking",
    "mlflow_of",
    "prepare",
    "run_pages",
    "sync",
    "tracking_uri",
]

SQLITE = "sqlite:///"
_ANSWER_SECONDS = 20.0
_DEFAULTS = {
    # By default MLflow waits two minutes for an answer and tries seven times, which is too long at the end of a study.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # A connection that was made while the disk was read-only would stay read-only, so each use makes a new one.
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",
    # Otherwise it prints every run's address, with the server's password if the address has one.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def prepare() -> None:
    """Make MLflow give up sooner and print less; to be called after its import and before its use."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    for name in ("alembic", "mlflow"):  # they log each table that they create, and errors of many lines
        logging.getLogger(name).setLevel(logging.CRITICAL)


def tracking_uri(folder: Path) -> str:
    """Return the URI of the sqlite database for the MLflow runs of a local store."""
    return f"{SQLITE}{folder / 'mlflow.db'}"


def mlflow_of(store: Store, uri: str | None) -> str | None:
    """Return the URI of a store's MLflow; None if it has none.

    Args:
        store: The store.
        uri: MLflow's tracking URI, or ``"none"``; by default a sqlite database in a local store, else none.

    Raises:
        UserError: unless MLflow answers at the URI; the store's own database need not exist yet.
    """
    if uri == "none" or (uri is None and store.local is None):
        return None
    if uri is not None:
        check_tracking(uri)
    elif "?" in str(store.local):
        raise UserError(
            f"store {str(store.local)!r} cannot hold MLflow's database, because an address of sqlite ends at the "
            "'?': choose another --store, or give --mlflow URI or --mlflow none"
        )
    return uri or tracking_uri(Path(str(store.local)))


def check_tracking(uri: str) -> None:
    """Raise ``UserError`` unless MLflow understands a tracking URI, and the server or database answers in 20 seconds.

    The check asks the server or the database for an experiment. If a sqlite file does not exist yet, the check does not
    create it, but its folder must be writable.

    Args:
        uri: MLflow's tracking URI, such as ``http://HOST:PORT`` or ``sqlite:///PATH``.
    """
    check_not_blank("mlflow", uri)
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import, which do not count as waiting

    prepare()
    file, why = Path(uri.removeprefix(SQLITE).partition("?")[0]), [f"no answer within {_ANSWER_SECONDS:g} s"]

    def ask() -> None:
        try:
            if uri.startswith(SQLITE) and not file.exists():
                Store.open(file.absolute().parent).check_writable()
            else:
                MlflowClient(tracking_uri=uri).get_experiment_by_name("topk")
            why.clear()
        except Exception as error:  # noqa: BLE001 - from MLflow, one of its plug-ins or a database's driver
            why[:] = [reason(error)]

    # A thread asks, because MLflow tries for minutes to open a database that does not answer.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if why:
        raise UserError(
            "mlflow must be the URI of an MLflow server that answers, http://HOST:PORT, or of a database, "
            f"sqlite:///PATH, got {masked(uri)!r}: {why[0]}"
        )


def run_pages(uri: str) -> dict[str, str]:
    """Return the page of each study's runs in a database, as a path on the server that shows it, by the study's name.

    Once a study has results, its arms come first on the page, the best one on top.
    """
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import, for the UI alone

    prepare()
    known = MlflowClient(tracking_uri=uri).search_experiments(order_by=["name"])
    page = f"/#/experiments/{{}}/runs?viewStateShareKey={LEDGER}"
    return {study.name: page.format(study.experiment_id) for study in known if LEDGER in study.tags}


Pictures = Callable[[], Mapping[str, bytes]]
"""Makes the report and the plots, by file name, which takes seconds or minutes."""

_LAST_SECONDS = 2.0  # if Ray is lost, because a cluster's driver is then ended soon
_LOG = logging.getLogger("topk_platform")


class Feed(threading.Thread):
    """A thread that fills MLflow with a study's trials, as they end, and with its results.

    The thread begins with the first trial that is handed over, or at the end, because MLflow's import takes seconds.
    Each try first brings MLflow up to date with the ledger, so no trial is lost that a try before could not write. If
    MLflow fails, a warning says so at once, the study goes on, and the thread tries again every half minute. What is
    missing at the end is filled in by the next run or by :func:`sync`.

    Args:
        uri: MLflow's tracking URI.
        ledger: The study's ledger.
        folder: The store's folder if it is on this machine.
        pictures: Makes the report and the plots; None leaves those that MLflow has.

    Attributes:
        pause: The seconds before each further try.
        patience: How many seconds to wait at the end while MLflow makes no progress.
        error: The error of the last try; None if MLflow works.
    """

    pause = 30.0
    patience = 300.0  # a report may take minutes to draw

    def __init__(
        self, uri: str, ledger: Ledger, folder: Path | None = None, pictures: Pictures | None = None
    ) -> None:
        super().__init__(name="MLflow", daemon=True)
        self.error: Exception | None = None
        self._uri, self._ledger, self._folder, self._pictures = uri, ledger, folder, pictures
        self._queue: queue.SimpleQueue[TrialRecord | None] = queue.SimpleQueue()
        self._files: Mapping[str, str] | None = None
        self._closing, self._moving = threading.Event(), threading.Event()

    def put(self, record: TrialRecord) -> None:
        """Hand over an ended trial that is in the ledger, without waiting for MLflow."""
        self._queue.put(record)

    def close(self, files: Mapping[str, str] | None = None, *, at_once: bool = False) -> str:
        """Wait until all is written, or until one more try has failed; return what failed, in words, or nothing.

        Args:
            files: The text files of the study's tables, by name, which follow its trials; None for none.
            at_once: Whether only seconds are left. MLflow then gets no report and no plots.
        """
        patience = _LAST_SECONDS if at_once else self.patience
        self._files, self._pictures = files, None if at_once else self._pictures
        self._closing.set()
        self._queue.put(None)
        self._moving.set()
        while self.is_alive() and self._moving.is_set():
            self._moving.clear()
            self.join(patience)
        if self.is_alive() and self.error is None:
            return f"MLflow is behind: it has made no progress for {patience:g} s"
        return "" if self.error is None else f"MLflow is behind: {reason(self.error)}"

    def run(self) -> None:
        """Fill in the trials that MLflow lacks, then write those that are handed over, until closed."""
        if self._queue.get() is None:  # a trial that is taken here is in the ledger
            self._queue.put(None)
        last = False
        while not last:
            last = self._closing.is_set() and self.error is not None
            try:
                self._fill()
            except Exception as error:  # noqa: BLE001 - no failure of MLflow may stop a study; close() returns it
                if self.error is None:
                    _LOG.warning("MLflow is behind and is tried again: %s", reason(error))
                self.error = error
                self._closing.wait(self.pause)
            else:
                return

    def _fill(self) -> None:
        from topk_platform.tracking.writing import Experiment  # noqa: PLC0415 - seconds, in this thread

        prepare()
        experiment = Experiment(self._ledger, self._uri, self._folder)
        missing, epochs = [row for row in self._ledger.rows() if not experiment.has(row)], defaultdict(list)
        for epoch in RowViews(self._ledger.read("epochs")) if missing else ():
            epochs[epoch["key"]].append(epoch)
        for row in missing:
            experiment.write_trial(row, epochs[row["key"]])
            self._moving.set()
        self.error = None
        for record in iter(self._queue.get, None):
            self._moving.set()
            experiment.write_trial(trial_row(record), epoch_rows(record))
        self._queue.put(None)  # so that a further try ends, too
        if self._files is not None:
            self._moving.set()
            experiment.write_tables(self._files, self._pictures)


def sync(
    study: str, *, store: str | Path = "runs", mlflow_uri: str | None = None, pictures: Pictures | None = None
) -> None:
    """Write a study's ended trials and tables to an MLflow that lacks them; train nothing.

    Args:
        study: The study's name.
        store: Folder or URI of the results.
        mlflow_uri: MLflow's tracking URI; by default a sqlite database in a local store.
        pictures: A function that makes the report and the plots; without it, MLflow keeps those that it has.

    Raises:
        UserError: if the store holds nothing of the study, its tables are damaged, or MLflow cannot be written.
    """
    opened = Store.open(store)
    ledger = Ledger.open(opened, study)
    if not ledger.exists:
        raise nothing_of(store, study)
    uri = mlflow_of(opened, mlflow_uri)
    if uri is None:
        raise UserError(f"mlflow must name an MLflow to fill, such as http://HOST:PORT, got {mlflow_uri}")
    feed = Feed(uri, ledger, opened.local, pictures)
    tables = (name for name in ledger.store.names("tables") if name.endswith((".md", ".csv", ".json")))
    texts = {name: ledger.store.read(f"tables/{name}").decode(errors="replace") for name in tables}
    arms_of(texts)
    feed.start()
    if problem := feed.close(texts):
        raise UserError(f"not everything could be written: {problem}")
    Unfinished(Unfinished.read(ledger.store).open).note(ledger.store)  # MLflow is not behind any more
