"""A study from its definition to its table; running it again is how it is resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from topk_platform.data import data_at
from topk_platform.errors import StoreError, UserError
from topk_platform.records import (
    ArmHistory,
    Ledger,
    Store,
    TrackingSink,
    check_tracking,
    forget,
    read_history,
    tracking_uri,
)
from topk_platform.reports import Table, build_table, to_files
from topk_platform.running.checks import (
    Checked,
    check_device,
    check_imported,
    check_study,
    code_versions,
    with_budget,
)
from topk_platform.running.scratch import scratch_folder
from topk_platform.search import ArmBoard, Board
from topk_platform.specs import Study, TrialRecord

__all__ = ["Progress", "Summary", "make_board", "run", "table"]

Progress = Callable[[Board, TrialRecord | None], None]
"""Told of the study's state after every ended trial, and, with None, at the start and after every lost process."""


@dataclass(frozen=True)
class Summary:
    """What a run did.

    Args:
        table: The table of what was asked for, as it stands.
        ran: How many trials ended in this run.
        left: How many are still to end; above 0 after an interrupt.
        tracking_error: What kept MLflow from being written, if anything did.
        folder: The study's folder, as a URI.
    """

    table: Table
    ran: int
    left: int
    tracking_error: Exception | None
    folder: str


def make_board(checked: Checked, histories: dict[str, ArmHistory]) -> Board:
    """Return the study's state as the ledger tells it."""
    return Board(
        ArmBoard(
            study=checked.study,
            arm=history.arm,
            dataset_fingerprint=checked.fingerprints[arm_id],
            code_version=checked.codes[arm_id],
            searched=history.ended(),
            confirmed={("confirm", number, seed) for number, seed in history.confirm},
        )
        for arm_id, history in histories.items()
    )


def run(
    study: Study,
    *,
    store: str | Path = "runs",
    address: str | None = None,
    trials: int | None = None,
    seeds: int | None = None,
    only: str | Sequence[str] | None = None,
    workers: int | None = None,
    mlflow_uri: str | None = None,
    checkpoint_seconds: float = 30.0,
    progress: Progress | None = None,
    data: str | Path | None = None,
    download: bool = False,
    retry_failed: bool = False,
) -> Summary:
    """Run what is missing of a study and return its table.

    The outcome depends on the study and its seeds alone: neither workers nor interruptions change a number. What
    the ledger holds is not run again. Whatever part of the study is asked for, the files in its ``tables`` folder are
    of the whole study as it is defined; after an error or an interrupt they are written as well.

    Args:
        study: The study.
        store: Folder or URI of the results.
        address: A Ray cluster's; by default Ray starts on this machine.
        trials: Search trials per arm, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.
        only: A glob over arm names, ``regime/model/loss``, or several.
        workers: How many trials may run at once.
        mlflow_uri: MLflow's tracking URI, which has to answer at the start; an MLflow that is down later stops nothing.
            By default a sqlite database in a local store.
        checkpoint_seconds: The least time between two checkpoints of a trial, from which one that is cut off goes on.
        progress: Called after every trial.
        data: The folder of datasets, the same on every machine; by default ``TOPK_DATA``, or else ``data``.
        download: Whether to download into it the datasets that are not there.
        retry_failed: Whether trials that failed run again, in place of their records; later search trials stay as
            they were suggested.

    Raises:
        MissingDataError: if a dataset is not on disk.
        ChangedError: if a source file or the data changed while the study ran: nothing wrong is kept, and running
            it again goes on.
        UserError: if something the user gave cannot be; nothing was written and no worker started.

    Example:
        >>> from topk_studies import digits
        >>> summary = run(digits().smoke(), store="runs", only="balanced/*")  # doctest: +SKIP
    """
    part = with_budget(study.only(only) if only else study, trials, seeds)
    check_imported(part)
    if workers is not None and workers < 1:
        raise UserError(f"workers must be at least 1, got {workers}")
    if not checkpoint_seconds >= 0:
        raise UserError(f"checkpoint_seconds must be at least 0, got {checkpoint_seconds}")
    if address is None:
        check_device(part)
    if mlflow_uri is not None:
        check_tracking(mlflow_uri)
    with data_at(data):
        launch = _Launch(Store.open(store), address, workers, mlflow_uri, checkpoint_seconds, retry_failed)
        return _run(study, check_study(part, download), launch, progress or (lambda _board, _record: None))


@dataclass(frozen=True)
class _Launch:
    """Where and how a study runs; nothing of it changes a result."""

    store: Store
    address: str | None
    workers: int | None
    mlflow_uri: str | None
    checkpoint_seconds: float
    retry_failed: bool = False


def _run(whole: Study, checked: Checked, launch: _Launch, tell: Progress) -> Summary:
    study, codes = checked.study, code_versions(whole)
    ledger = Ledger.open(launch.store, study.name)
    ledger.store.check_writable()
    again = _failed(checked, ledger) if launch.retry_failed else []
    needed = bool(_board(checked, ledger).left or again)

    def known() -> dict[str, ArmHistory]:
        return read_history(ledger, whole, codes, checked.fingerprints)

    with _cluster(study, launch) if needed else nullcontext(0) as slots, ledger.writing(study):
        ledger.remove(again)
        board = _board(checked, ledger)
        recorder = _Recorder(ledger, _sink(launch.store, ledger, launch.mlflow_uri, again))
        forget(ledger.store, ledger.keys())
        with _closing(lambda: recorder.close(lambda: to_files(build_table(whole, known())))):
            tell(board, None)
            if board.left:
                _run_trials(study, board, recorder, tell, slots, launch.checkpoint_seconds)
        budget = dataclasses.replace(whole, trials=study.trials, seeds=study.seeds)
        found = build_table(budget, known(), study.arms)
    return Summary(found, recorder.ran, board.left, recorder.tracking_error, ledger.store.uri)


@contextmanager
def _closing(close: Callable[[], None]) -> Iterator[None]:
    """Close at the end, whatever happened; the error that ended it stays the one to tell."""
    try:
        yield
    except BaseException as error:
        try:
            close()
        except Exception as another:  # noqa: BLE001 - told in a note of the first error, its cause as a rule
            error.add_note(f"The tables could not be written: {another!r}")
        raise
    close()


def _failed(checked: Checked, ledger: Ledger) -> list[str]:
    histories = read_history(ledger, checked.study, checked.codes, checked.fingerprints).values()
    return [row["key"] for history in histories for row in history.rows() if row["status"] == "failed"]


def _board(checked: Checked, ledger: Ledger) -> Board:
    return make_board(checked, read_history(ledger, checked.study, checked.codes, checked.fingerprints))


def _cluster(study: Study, launch: _Launch) -> AbstractContextManager[int]:
    # Ray takes a second to import, which a study that is done need not wait for.
    from topk_platform.running.cluster import connected  # noqa: PLC0415

    return connected(study, launch.address, launch.workers)


def _run_trials(
    study: Study,
    board: Board,
    recorder: _Recorder,
    tell: Progress,
    slots: int,
    checkpoint_seconds: float,
) -> None:
    from topk_platform.running.tuning import tune_trials  # noqa: PLC0415 - as above

    with scratch_folder() as scratch:
        tune_trials(
            study,
            board,
            recorder,
            partial(tell, board),
            recorder.ledger.store.address,
            slots,
            scratch,
            checkpoint_seconds,
        )


@dataclass
class _Recorder:
    """Keeps what trials bring: first the ledger, then, off the hot path, the sink."""

    ledger: Ledger
    sink: TrackingSink | None
    ran: int = 0
    tracking_error: Exception | None = None

    def __call__(self, record: TrialRecord) -> None:
        row, epochs = self.ledger.append(record)
        self.ran += 1
        if self.sink is not None:
            self.sink.put(row, epochs)

    def close(self, make_files: Callable[[], Mapping[str, bytes]]) -> None:
        """Write the tables, wait for the sink, and keep what stopped it, if anything did."""
        try:
            files = make_files()
            for name, content in files.items():
                self.ledger.store.write(f"tables/{name}", content)
            if self.sink is not None:
                texts = {name: files[name].decode() for name in files if not name.endswith(".parquet")}
                self.sink.put_files(texts)
        finally:
            self.tracking_error = None if self.sink is None else self.sink.close()


def _sink(store: Store, ledger: Ledger, uri: str | None, stale: Sequence[str]) -> TrackingSink | None:
    local = store.local
    if uri is None and local is None:
        return None
    artifacts = None if uri is not None or local is None else (local / "mlflow-artifacts").as_uri()
    sink = TrackingSink(uri or tracking_uri(Path(store.root)), artifacts, ledger, stale)
    sink.start()
    return sink


def table(
    study: Study,
    *,
    store: str | Path = "runs",
    trials: int | None = None,
    seeds: int | None = None,
    only: str | Sequence[str] | None = None,
) -> Table:
    """Return the table of what the store holds of a study, running nothing.

    Of a study with published numbers there is a table of these before anything ran.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm to select among, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.
        only: A glob over the names of the arms to show, ``regime/model/loss``, or several.

    Raises:
        UserError: if the store holds something else, or nothing of the study.
    """
    study = with_budget(study, trials, seeds)
    shown = study.only(only) if only else study
    ledger = Ledger.open(Store.open(store), study.name)
    if not ledger.exists and not shown.published:
        raise StoreError(f"store {str(store)!r} holds nothing of study {study.name!r}")
    return build_table(study, read_history(ledger, study, code_versions(study)), shown.arms)
