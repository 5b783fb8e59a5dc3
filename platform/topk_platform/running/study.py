"""A study from its definition to its table; running it again is how it is resumed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from topk_platform.code_version import code_version
from topk_platform.errors import UserError
from topk_platform.records import (
    ArmHistory,
    Ledger,
    Store,
    TrackingSink,
    read_history,
    tracking_uri,
)
from topk_platform.reports import Table, build_table, to_arrow, to_csv, to_markdown
from topk_platform.running.checks import Checked, check_device, check_study, with_budget
from topk_platform.search import ArmBoard, Board
from topk_platform.specs import Study, TrialRecord

__all__ = ["Progress", "Summary", "make_board", "run", "table"]

Progress = Callable[[Board, TrialRecord | None], None]
"""Told of the study's state at the start, with None, and after every ended trial."""


@dataclass(frozen=True)
class Summary:
    """What a run did.

    Args:
        table: The table as it stands.
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


def make_board(checked: Checked, histories: dict[str, ArmHistory], code: str) -> Board:
    """Return the study's state as the ledger tells it."""
    return Board(
        ArmBoard(
            study=checked.study,
            arm=history.arm,
            dataset_fingerprint=checked.fingerprints[arm_id],
            code_version=code,
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
    only: str | None = None,
    workers: int | None = None,
    mlflow_uri: str | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Run what is missing of a study and return its table.

    The outcome depends on the study and its seeds alone: neither workers nor interruptions change a number. What
    the ledger holds is not run again.

    Args:
        study: The study.
        store: Folder or URI of the results.
        address: A Ray cluster's; by default Ray starts on this machine.
        trials: Search trials per arm, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.
        only: A glob over arm names, ``regime/model/loss``.
        workers: How many trials may run at once.
        mlflow_uri: MLflow's tracking URI; by default a sqlite database in a local store.
        progress: Called after every trial.

    Raises:
        UserError: if something the user gave cannot be; nothing was written and no worker started.

    Example:
        >>> from topk_studies import digits
        >>> summary = run(digits().smoke(), store="runs", only="balanced/*")  # doctest: +SKIP
    """
    study = with_budget(study.only(only) if only else study, trials, seeds)
    if address is None:
        check_device(study)
    checked, code = check_study(study), code_version(study)
    place = Store.open(store)
    ledger = Ledger.open(place, study.name)
    if workers is not None and workers < 1:
        raise UserError(f"workers must be at least 1, got {workers}")
    with ledger.writing(study):
        before = read_history(ledger, study, code, checked.fingerprints)
        board = make_board(checked, before, code)
        sink = _sink(place, ledger, mlflow_uri)
        ran = 0

        def keep(record: TrialRecord) -> None:
            nonlocal ran
            rows = ledger.append(record)
            ran += 1
            if sink is not None:
                sink.put(*rows)

        try:
            if progress is not None:
                progress(board, None)
            if board.left:
                _run_on_ray(study, board, keep, ledger.store.uri, address, workers, progress)
        finally:
            found = build_table(study, read_history(ledger, study, code, checked.fingerprints))
            files = _write_tables(ledger.store, found)
            error = _close(sink, files)
    return Summary(found, ran, board.left, error, ledger.store.uri)


def _sink(store: Store, ledger: Ledger, uri: str | None) -> TrackingSink | None:
    if uri is None and store.local is None:
        return None
    local = store.local
    artifacts = None if uri is not None or local is None else (local / "mlflow-artifacts").as_uri()
    sink = TrackingSink(uri or tracking_uri(Path(store.root)), artifacts, ledger)
    sink.start()
    return sink


def _close(sink: TrackingSink | None, files: dict[str, str]) -> Exception | None:
    if sink is None:
        return None
    sink.put_files(files)
    return sink.close()


def _run_on_ray(
    study: Study,
    board: Board,
    keep: Callable[[TrialRecord], None],
    store: str,
    address: str | None,
    workers: int | None,
    progress: Progress | None,
) -> None:
    # Ray takes a second to import, which a study that is done need not wait for.
    from topk_platform.running.cluster import connected  # noqa: PLC0415
    from topk_platform.running.tuning import tune_trials  # noqa: PLC0415

    def tell(record: TrialRecord) -> None:
        if progress is not None:
            progress(board, record)

    scratch = tempfile.mkdtemp(prefix="topk-tune-")
    try:
        with connected(study, address, workers) as slots:
            tune_trials(study, board, keep, tell, store, slots, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_tables(store: Store, found: Table) -> dict[str, str]:
    files = {"table.md": to_markdown(found), "table.csv": to_csv(found)}
    for name, text in files.items():
        store.write(f"tables/{name}", text.encode())
    store.write("tables/table.parquet", _parquet(found))
    return files


def _parquet(found: Table) -> bytes:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    sink = pa.BufferOutputStream()
    pq.write_table(to_arrow(found), sink)
    return bytes(sink.getvalue())


def table(
    study: Study, *, store: str | Path = "runs", trials: int | None = None, seeds: int | None = None
) -> Table:
    """Return the table of what the store holds of a study, running nothing.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm to select among, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.

    Raises:
        UserError: if the store holds something else.
    """
    study = with_budget(study, trials, seeds)
    ledger = Ledger.open(Store.open(store), study.name)
    return build_table(study, read_history(ledger, study, code_version(study)))

