"""Running a study from its definition to its table; running it again resumes it."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from topk_platform.errors import masked
from topk_platform.identity import Identity
from topk_platform.records import Ledger, Store, StudyRows, check_undriven, last_counted
from topk_platform.running.cluster.patience import Patience
from topk_platform.running.driver.boards import as_checked, finished, in_environment, make_board
from topk_platform.running.driver.budget import Budget, Limits
from topk_platform.running.driver.execution import Execution, Progress
from topk_platform.running.driver.incomplete import complete_histories
from topk_platform.running.driver.launching import Launch
from topk_platform.running.driver.recording import draws_report
from topk_platform.running.driver.summary import Summary
from topk_platform.running.progress.views import view_for
from topk_platform.specs import Study
from topk_platform.specs.fields import check_call
from topk_platform.tracking import mlflow_of

__all__ = ["Progress", "run"]


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
    progress: Progress | bool = True,
    data: str | Path | None = None,
    download: bool = False,
    retry_failed: bool = False,
    networks: bool = False,
    mixed: bool = False,
    max_hours: float | None = None,
    max_gpu_hours: float | None = None,
    max_trials: int | None = None,
    accelerator: str | None = None,
    wait: float | None = None,
    waiting: Callable[[str], None] | None = None,
) -> Summary:
    """Run the missing trials of a study and return a summary with its table.

    The results depend on the study and its seeds alone: neither workers nor interruptions change a number. Trials in
    the ledger are not run again. The files in the study's ``tables`` folder always cover the whole study as defined,
    even if only a part of it was run, and are written after an error or an interrupt as well. If a machine's fault
    stops a trial, the trial has no record. It is tried again, in this run and in the next; see :class:`Summary`.

    Args:
        study: The study.
        store: Folder or URI of the results.
        address: A Ray cluster's address; by default Ray starts on this machine.
        trials: Search trials per arm, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.
        only: A glob over arm names, ``regime/model/loss``, or several.
        workers: How many trials may run at once.
        mlflow_uri: MLflow's tracking URI. MLflow must answer at the start; if it is down later, the study goes on. By
            default a sqlite database in a local store. ``"none"`` for no MLflow.
        checkpoint_seconds: The least number of seconds between two checkpoints of a trial. A trial that is cut off
            continues from its last checkpoint.
        progress: Whether to show progress on standard error, live in a terminal and as occasional lines elsewhere. Or
            a function that is called with every event (the run's start, each trial's start, end and fault); then
            nothing is shown.
        data: The folder of datasets, the same on every machine; by default ``TOPK_DATA``, or else ``data``.
        download: Whether to download missing datasets into that folder.
        retry_failed: Whether failed trials run again and replace their records; later search trials stay as they were
            suggested.
        networks: Whether confirmations also run again if their network is missing or damaged. Confirmations without
            their ranks or guesses always run again.
        mixed: Whether machines, and versions of torch, Numba, Triton and Optuna, may differ: then all results count,
            and the table says so.
        max_hours: Hours that this run may take. A trial does not start if it would probably end later; the mean time of
            its arm's ended trials, or else an estimate, decides this. Trials that still run at the limit are cut off,
            and the next run continues them from their checkpoints.
        max_gpu_hours: The same limit in GPU hours, over all GPUs.
        max_trials: How many trials may start in this run.
        accelerator: The only kind of GPU to train on, by Ray's name for it, such as ``"A100"``, instead of the study's.
        wait: How many seconds to wait for a cluster's head that does not listen yet, and for a node on which a trial
            fits. The default is a minute for each, or 15 minutes for a node that ``workers`` lets the cluster add. A
            head that listens has 20 s to answer in any case. Nodes have two minutes to answer, or ``wait`` if that is
            longer; without ``wait`` they have no limit.
        waiting: Called with lines of text: what the run waits for, and which classes have no sample in a split. By
            default only the lines about classes are shown, as Python warnings.

    Raises:
        MissingDataError: if a dataset is not on disk.
        StoreError: if the store cannot be used, or is a folder that some machine of the cluster does not see.
        ClusterError: if the cluster cannot be reached, or its nodes would not compute the same bits.
        ChangedError: if the code or the data changed while the study ran; no wrong result is kept, and running
            it again continues.
        UserError: if an argument or the study is invalid; nothing was written and no worker started.

    Example:
        >>> from topk_studies import digits
        >>> summary = run(digits().smoke(), store="runs", only="balanced/*")  # doctest: +SKIP
    """
    check_call(run, locals())
    part = (study.only(only) if only else study).with_budget(trials, seeds)
    part = part if accelerator is None else replace(part, accelerator=accelerator)
    limits = Limits(max_hours, max_gpu_hours, max_trials)
    opened = Store.open(store)
    launch = Launch(
        store=opened,
        address=address,
        workers=workers,
        checkpoint_seconds=checkpoint_seconds,
        budget=Budget(limits, part.gpus),
        retry_failed=retry_failed,
        mixed=mixed,
        patience=Patience(wait, waiting),
        networks=networks,
        given=_given(store=store, data=data, address=address),
        only=(only,) if isinstance(only, str) else tuple(only or ()),
        sync=() if mlflow_uri is None else ("--mlflow", shlex.quote(masked(mlflow_uri))),
    )
    launch.check()
    draws_report()  # a wrong value in the environment is refused here
    limits.check(part)
    launch = replace(launch, mlflow=mlflow_of(opened, mlflow_uri))
    ledger = Ledger.open(launch.store, study.name)
    ledger.store.check_writable()
    check_undriven(ledger.store)
    with nullcontext(progress) if callable(progress) else view_for(progress) as report:
        notify = warnings.warn if waiting is None else waiting
        return _run_checked(study, part, ledger, launch, report, data, download, notify)


def _given(**locations: str | Path | None) -> dict[str, str]:
    return {name: str(one) for name, one in locations.items() if one is not None}


def _run_checked(
    study: Study,
    part: Study,
    ledger: Ledger,
    launch: Launch,
    report: Progress,
    data: str | Path | None,
    download: bool,
    notify: Callable[[str], object],
) -> Summary:
    # Torch takes a second or two to import; errors in the arguments are reported before.
    from topk_platform.data import data_at  # noqa: PLC0415
    from topk_platform.running.preflight.checks import check_device, check_imported, check_study  # noqa: PLC0415
    from topk_platform.running.preflight.training_splits import notes_on_data  # noqa: PLC0415

    check_imported(part)
    if launch.address is None:
        check_device(part)
    with data_at(data):
        counted, rows = _expected(part, ledger, launch), StudyRows(ledger, study.arms)
        checked = check_study(part, download, _finished(rows, part, counted, launch))
        for note in notes_on_data(part):
            notify(f"Note: {note}")
        return Execution(study, part, as_checked(checked, counted), rows, launch, report).run()


def _finished(rows: StudyRows, part: Study, counted: dict[str, Identity], launch: Launch) -> dict[str, str]:
    """Return the arms that need no check; the histories go, since they hold rows that the driver releases later."""
    histories = {} if launch.retry_failed else complete_histories(rows, part, counted, launch.needed)
    return finished(make_board(part, counted, histories), counted)


def _expected(study: Study, ledger: Ledger, launch: Launch) -> dict[str, Identity]:
    """Return which rows count. Before a cluster's machines can be asked, those of the last run are assumed."""
    counted = last_counted(ledger, study)
    if launch.mixed:
        return {arm_id: replace(identity, environment={}) for arm_id, identity in counted.items()}
    if launch.address is None:
        from topk_platform.training import environment  # noqa: PLC0415 - torch

        return in_environment(study, counted, environment(study.device))
    return counted
