"""A study from its definition to its table; running it again is how it is resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from topk_platform.errors import StoreError, UserError
from topk_platform.identity import Identity
from topk_platform.records import (
    ArmHistory,
    Ledger,
    Store,
    TrackingSink,
    Writer,
    check_tracking,
    forget,
    is_current,
    last_counted,
    open_sink,
    read_history,
    write_snapshot,
)
from topk_platform.reports import Table, build_table, to_files
from topk_platform.running.address import host_and_port
from topk_platform.running.boards import finished, in_environment, make_board
from topk_platform.running.faults import Faults
from topk_platform.running.remembered import known_done, note
from topk_platform.running.scratch import scratch_folder
from topk_platform.search import Board
from topk_platform.specs import Study, TrialRecord

__all__ = ["Progress", "Summary", "run"]

Progress = Callable[[Board, TrialRecord | None], None]
"""Told of the study's state after every ended trial, and, with None, at the start and after every fault."""


@dataclass(frozen=True)
class Summary:
    """What a run did.

    Args:
        table: The table of what was asked for, as it stands.
        ran: How many trials ended in this run.
        left: How many are still to end; above 0 after an interrupt, or where faults left trials open.
        tracking_error: What kept MLflow from being written, if anything did.
        folder: The study's folder, as a URI.
        interrupted: Whether it ended before all had been tried.
        faults: What faults have left: trials without a result, which the same command tries again, and networks that
            could not be kept.
    """

    table: Table
    ran: int
    left: int
    tracking_error: Exception | None
    folder: str
    interrupted: bool = False
    faults: Faults = field(default_factory=Faults)


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
    mixed: bool = False,
) -> Summary:
    """Run what is missing of a study and return its table.

    The outcome depends on the study and its seeds alone: neither workers nor interruptions change a number. What
    the ledger holds is not run again. Whatever part of the study is asked for, the files in its ``tables`` folder are
    of the whole study as it is defined; after an error or an interrupt they are written as well. A trial that a fault
    of the machinery keeps from its result has no record, and is tried again, the next time as well: see
    :class:`Summary`.

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
        mixed: Whether machines, and versions of torch, Numba, Triton and Optuna, may differ: results of all of them
            count, and the table says so.

    Raises:
        MissingDataError: if a dataset is not on disk.
        ClusterError: if the cluster cannot be reached, or its nodes differ in what decides a result's last bits.
        ChangedError: if a source file or the data changed while the study ran: nothing wrong is kept, and running
            it again goes on.
        UserError: if something the user gave cannot be; nothing was written and no worker started.

    Example:
        >>> from topk_studies import digits
        >>> summary = run(digits().smoke(), store="runs", only="balanced/*")  # doctest: +SKIP
    """
    part = (study.only(only) if only else study).with_budget(trials, seeds)
    launch = _Launch(Store.open(store), address, workers, mlflow_uri, checkpoint_seconds, retry_failed, mixed)
    launch.check()
    ledger = Ledger.open(launch.store, study.name)
    ledger.store.check_writable()
    tell = progress or (lambda _board, _record: None)
    if not download and launch.plain and (done := known_done(part, ledger)):
        return _run(study, part, done, ledger, launch, tell)
    # Torch, a second or two that what is wrong with the arguments need not wait for.
    from topk_platform.data import data_at  # noqa: PLC0415
    from topk_platform.running.checks import check_device, check_imported, check_study  # noqa: PLC0415
    from topk_platform.training import environment  # noqa: PLC0415

    check_imported(part)
    if address is None:
        check_device(part)
    with data_at(data):
        counted = _expected(part, ledger, launch)
        histories = read_history(ledger, part, counted)
        checked = check_study(part, download, {} if retry_failed else finished(part, counted, histories))
        counted = {i: replace(found, environment=counted[i].environment) for i, found in checked.items()}
        summary = _run(study, part, counted, ledger, launch, tell)
    if address is None and part.device == "cpu":
        note(ledger.store, environment("cpu"), part, counted)
    return summary


@dataclass(frozen=True)
class _Launch:
    """Where and how a study runs."""

    store: Store
    address: str | None
    workers: int | None
    mlflow_uri: str | None
    checkpoint_seconds: float
    retry_failed: bool = False
    mixed: bool = False

    @property
    def plain(self) -> bool:
        """Whether what counts is this machine's alone, and what has ended stays."""
        return self.address is None and not self.retry_failed and not self.mixed

    def check(self) -> None:
        """Raise ``UserError`` for what cannot be."""
        if self.workers is not None and self.workers < 1:
            raise UserError(f"workers must be at least 1, got {self.workers}")
        if not self.checkpoint_seconds >= 0:
            raise UserError(f"checkpoint_seconds must be at least 0, got {self.checkpoint_seconds}")
        if self.address not in (None, "auto"):
            host_and_port(self.address)
        if self.mlflow_uri is not None:
            check_tracking(self.mlflow_uri)


def _expected(study: Study, ledger: Ledger, launch: _Launch) -> dict[str, Identity]:
    """Return which rows count. A cluster's machines are taken for the last run's until they can be asked."""
    counted = last_counted(ledger, study)
    if launch.mixed:
        return {arm_id: replace(identity, environment={}) for arm_id, identity in counted.items()}
    if launch.address is None:
        from topk_platform.training import environment  # noqa: PLC0415 - torch

        return in_environment(study, counted, environment(study.device))
    return counted


def _run(
    whole: Study, study: Study, counted: dict[str, Identity], ledger: Ledger, launch: _Launch, tell: Progress
) -> Summary:
    again = _failed(study, counted, ledger) if launch.retry_failed else []
    needed = bool(_board(study, counted, ledger).left or again)

    def known() -> dict[str, ArmHistory]:
        return read_history(ledger, whole, last_counted(ledger, whole), curves=False)

    with (
        _cluster(study, launch) if needed else nullcontext(_Cluster()) as cluster,
        ledger.writing(study) as writer,
    ):
        if cluster.environment is not None:
            counted = in_environment(study, counted, cluster.environment)
        ledger.identify({**last_counted(ledger, whole), **counted})
        writer.remove(again)
        board = _board(study, counted, ledger)
        recorder = _Recorder(ledger, writer, open_sink(launch.store, ledger, launch.mlflow_uri, tuple(again)))
        forget(ledger.store, ledger.keys())
        with _closing(lambda: recorder.close(whole, known)):
            tell(board, None)
            faults = Faults()
            if board.left:
                faults = _run_trials(study, board, recorder, tell, cluster.slots, launch.checkpoint_seconds)
        budget = dataclasses.replace(whole, trials=study.trials, seeds=study.seeds)
        found = build_table(budget, known(), study.arms)
    interrupted = board.left > 0 and not board.stuck
    return Summary(
        found, recorder.ran, board.left, recorder.tracking_error, ledger.store.uri, interrupted, faults
    )


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


def _failed(study: Study, counted: Mapping[str, Identity], ledger: Ledger) -> list[str]:
    histories = read_history(ledger, study, counted).values()
    return [row["key"] for history in histories for row in history.rows() if row["status"] == "failed"]


def _board(study: Study, counted: Mapping[str, Identity], ledger: Ledger) -> Board:
    return make_board(study, counted, read_history(ledger, study, counted))


@dataclass(frozen=True)
class _Cluster:
    """The connected cluster: how many trials may run at once, and its environment where it had to be asked for it."""

    slots: int = 0
    environment: Mapping[str, str] | None = None


@contextmanager
def _cluster(study: Study, launch: _Launch) -> Iterator[_Cluster]:
    # Ray takes a second to import, which a study that is done need not wait for.
    import ray  # noqa: PLC0415

    from topk_platform.running.cluster import connected  # noqa: PLC0415
    from topk_platform.running.machines import common_environment  # noqa: PLC0415

    here = launch.address is None and not ray.is_initialized()
    with connected(study, launch.address, launch.workers) as slots:
        yield _Cluster(slots, None if here or launch.mixed else common_environment(study))


def _run_trials(
    study: Study,
    board: Board,
    recorder: _Recorder,
    tell: Progress,
    slots: int,
    checkpoint_seconds: float,
) -> Faults:
    from topk_platform.running.tuning import tune_trials  # noqa: PLC0415 - as above

    with scratch_folder() as scratch:
        return tune_trials(
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
    writer: Writer
    sink: TrackingSink | None
    ran: int = 0
    tracking_error: Exception | None = None

    def __post_init__(self) -> None:
        self.writer.committed = self._committed

    def __call__(self, record: TrialRecord) -> None:
        if self.writer.error is not None:
            raise self.writer.error
        self.writer.put(record)
        self.ran += 1

    def _committed(self, records: Sequence[TrialRecord]) -> None:
        """Bring to MLflow what the ledger has; the checkpoints of such trials are no longer needed."""
        with suppress(StoreError):  # the next start sweeps what is left of them
            forget(self.ledger.store, (record.trial.key for record in records))
        if self.sink is not None:
            for record in records:
                self.sink.put(record)

    def close(self, whole: Study, known: Callable[[], dict[str, ArmHistory]]) -> None:
        """Wait for the ledger, write the tables, wait for the sink, and keep what stopped it, if anything did."""
        try:
            self.writer.flush()
            if self.writer.error is not None:
                raise self.writer.error
            self._write_tables(whole, known())
        finally:
            self.tracking_error = None if self.sink is None else self.sink.close()

    def _write_tables(self, whole: Study, histories: Mapping[str, ArmHistory]) -> None:
        store = self.ledger.store
        files = to_files(build_table(whole, histories))
        for name, content in files.items():
            store.write(f"tables/{name}", content)
        rows = (row for h in histories.values() for row in h.counting(whole.trials, whole.seeds))
        counting = {row["key"] for row in rows}
        if self.ran or not is_current(store, counting):
            write_snapshot(self.ledger, counting)
        if self.sink is not None:
            texts = {name: files[name].decode() for name in files if not name.endswith(".parquet")}
            self.sink.put_files(texts)
