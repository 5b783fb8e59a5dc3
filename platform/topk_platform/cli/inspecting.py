"""Commands that look into what is recorded."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from topk_platform.errors import StoreError, UserError
from topk_platform.identity import told
from topk_platform.specs.checks import check_place

if TYPE_CHECKING:
    from topk_platform.records import Found, Ledger, Row
    from topk_platform.running.faults import Faults
    from topk_platform.running.planning import Plan
    from topk_platform.running.probing import Probe
    from topk_platform.running.study import Summary

__all__ = [
    "DataOption",
    "StoreOption",
    "add_to",
    "named_place",
    "print_plan",
    "print_probe",
    "print_summary",
]

_OPEN = 3  # the exit code where faults left trials without a result


def named_place(option: typer.CallbackParam, value: str | None) -> str | None:
    """Return an option's value, a path or an address; raise ``UserError`` if it is blank."""
    if value is not None:
        check_place(option.opts[0], value)
    return value


MlflowOption = Annotated[
    str | None,
    typer.Option(
        "--mlflow", help="MLflow's tracking URI; sqlite in the store by default.", callback=named_place
    ),
]
StoreOption = Annotated[
    str, typer.Option("--store", help="Folder or URI of the results.", callback=named_place)
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Folder of datasets; TOPK_DATA or data/ by default.", callback=named_place),
]
KeyArgument = Annotated[str, typer.Argument(help="A trial's key, or its first letters.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (status, show, replay, ui):
        app.command()(command)


def status(store: StoreOption = "runs") -> None:
    """Show what the store holds: trials by study, arm, phase and how they ended."""
    from topk_platform.records import Ledger, Store  # noqa: PLC0415

    console, place = Console(), Store.open(store)
    shown = 0
    for study in place.folders():
        try:
            ledger = Ledger.open(place, study)
        except StoreError:  # a folder of something else, such as MLflow's artifacts
            continue
        if ledger.exists:
            shown += 1
            console.print(_status_table(ledger))
    if not shown:
        raise UserError(f"store {store!r} holds no study")


def _status_table(ledger: Ledger) -> Table:
    rows = ledger.rows()
    outdated = _outdated(ledger, rows)
    last = max((row["ended"] for row in rows), default=None)
    when = f", the last at {last:%Y-%m-%d %H:%M:%S} UTC" if last else ""
    title = f"{ledger.study}: {len(rows)} trials ended{when}" + (
        f"; {sum(outdated.values())} do not count: {told(outdated)}" if outdated else ""
    )
    found = Table(
        "arm", "phase", "completed", "pruned", "diverged", "failed", title=title, title_justify="left"
    )
    counts = Counter((row["arm"], row["phase"], row["status"]) for row in rows)
    for arm, phase in dict.fromkeys((row["arm"], row["phase"]) for row in sorted(rows, key=_by_arm)):
        numbers = [counts[arm, phase, name] for name in ("completed", "pruned", "diverged", "failed")]
        found.add_row(arm, phase, *(str(number or "") for number in numbers))
    return found


def _outdated(ledger: Ledger, rows: Sequence[Row]) -> Counter[str]:
    """Return how many rows did not count in the last run, by the reason."""
    counted = ledger.identities()
    gone = "arms that the study no longer has"
    reasons = (counted[row["arm_id"]].excludes(row) if row["arm_id"] in counted else gone for row in rows)
    return Counter(filter(None, reasons)) if counted else Counter()


def _by_arm(row: dict[str, str]) -> tuple[str, bool]:
    return row["arm"], row["phase"] == "confirm"


def show(key: KeyArgument, store: StoreOption = "runs") -> None:
    """Show one trial: how it ended, its configuration, its epochs, and how to run it alone."""
    from topk_platform.records import find  # noqa: PLC0415

    found = find(key, store)
    row, console = found.row, Console()
    console.print(f"[bold]{row['key']}[/]  {row['arm']}  {row['phase']} {row['number']}, seed {row['seed']}")
    console.print(f"{row['status']}{': ' + row['reason'] if row['reason'] else ''}", markup=False)
    parameters = {f"param.{name}": value for name, value in json.loads(row["values"]).items()}
    for name, value in {**parameters, **row}.items():
        if value is not None and name.startswith(("param.", "validation.", "test.")):
            console.print(f"  {name:<28} {value}", highlight=False)
    console.print(_epochs(found))
    console.print_json(json.dumps(json.loads(row["config"])))
    console.print(f"run it alone: {sys.argv[0]} replay {row['key']} --store {store}", highlight=False)


def _epochs(found: Found) -> Table:
    first = found.epochs[0] if found.epochs else {}
    metrics = [name for name, value in first.items() if name not in ("key", "epoch") and value is not None]
    table = Table("epoch", *metrics, title="epochs", title_justify="left")
    for row in found.epochs:
        table.add_row(
            str(row["epoch"]), *("" if row[name] is None else f"{row[name]:.4g}" for name in metrics)
        )
    return table


def replay(key: KeyArgument, store: StoreOption = "runs", data: DataOption = None) -> None:
    """Run one recorded trial again, alone in this process, and compare it with its record."""
    from topk_platform.running.replaying import replay as replay_trial  # noqa: PLC0415

    found = replay_trial(key, store, data)
    record = found.record
    typer.echo(
        f"{record.status}{': ' + record.reason if record.reason else ''} in {record.train_seconds:.2f} s"
    )
    for name, value in {**record.validation, **(record.test or {})}.items():
        typer.echo(f"  {name:<16} {value:.6f}")
    if found.code_version != found.found.trial.code_version:
        typer.echo(
            f"the code has changed: its record's version is {found.found.trial.code_version}, "
            f"this one's {found.code_version}"
        )
    if found.environment:
        typer.echo(f"the machine or its packages are others: {found.environment}")
    if found.differing:
        typer.echo(f"differs from its record in {', '.join(found.differing)}")
        raise typer.Exit(1)
    typer.echo("the same as its record, bit for bit")


def ui(
    store: StoreOption = "runs",
    host: Annotated[str, typer.Option(help="Address to listen on.", callback=named_place)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 5000,
) -> None:
    """Open MLflow's UI over a store's runs, on loopback unless told otherwise."""
    from topk_platform.records import Store, tracking_uri  # noqa: PLC0415

    folder = Store.open(store).local
    if folder is None or not (folder / "mlflow.db").exists():
        raise UserError(f"store {store!r} holds no MLflow database; `topk run` makes one in a local store")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking_uri(folder)]
    command += ["--artifacts-destination", str(folder / "mlflow-artifacts")]
    command += ["--host", host, "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    _check_free(host, port)
    typer.echo(f"MLflow on http://{host}:{port} (Ctrl-C ends it)")
    raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)  # noqa: S603 - our own interpreter


def _check_free(host: str, port: int) -> None:
    try:
        socket.create_server((host, port)).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"cannot listen on --host {host!r} and --port {port}: {error}") from error


def print_plan(console: Console, plan: Plan) -> None:
    """Print a plan."""
    study = plan.study
    table = Table("arm", "search", "confirm", "left", "s/trial", title=study.name, title_justify="left")
    for arm in plan.arms:
        seconds = f"{arm.trial_seconds:.2f}" + ("" if arm.measured else " (guess)")
        trials = study.trials if arm.arm.searches else 0
        done = f"{arm.searched}/{trials}", f"{arm.confirmed}/{study.seeds}"
        table.add_row(arm.arm.name, *done, str(arm.left), seconds)
    console.print(table)
    console.print(
        f"{plan.left} trials left, about {_duration(plan.seconds)} of training on one worker at most"
    )


def print_probe(console: Console, found: Probe) -> int:
    """Print what a probe found and return the command's exit code."""
    memory = "all free memory" if found.memory is None else f"{found.memory / 2**30:.2f} GiB"
    title = f"{found.study.name} on {found.study.device}, {memory} a trial"
    table = Table("arm", "largest batch", "recipe's batch", "accumulate", title=title, title_justify="left")
    for arm in found.arms:
        numbers = arm.largest or "–", arm.batch, arm.accumulate or "–"
        table.add_row(arm.arm.name, *map(str, numbers))
    console.print(table)
    console.print(
        "largest batch: in one part, to one in 16, never more than the training split; accumulate: the least with "
        "which the recipe's batch fits"
    )
    problems = {arm.arm.name: arm.problem for arm in found.arms if arm.problem}
    for name, problem in problems.items():
        console.print(f"{name}: {problem}", markup=False, style="red")
    return 1 if problems else 0


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def print_summary(console: Console, summary: Summary, store: str) -> int:
    """Print what a run did and return the command's exit code.

    It is 130 after an interrupt; else 3 if faults left trials without a result; else 1 if a trial failed or an arm
    ended without a result.
    """
    from topk_platform.reports import to_rich  # noqa: PLC0415

    console.print(to_rich(summary.table))
    console.print(
        f"{summary.ran} trials ran. Results: {summary.folder} (ledger, tables, models, ranks)",
        highlight=False,
    )
    if summary.tracking_error is None and Path(store, "mlflow.db").is_file():
        console.print(
            f"Look into every trial in the MLflow UI: {sys.argv[0]} ui --store {store}", highlight=False
        )
    elif summary.tracking_error is not None:
        console.print(
            f"MLflow was not written: {summary.tracking_error!r}. The next `topk run` fills it in.",
            markup=False,
        )
    for key, arm, reason in summary.table.failures:
        console.print(f"failed: {key} {arm}: {reason}", markup=False, style="red")
    _print_faults(console, summary.faults)
    if summary.interrupted:
        console.print(f"Interrupted with {summary.left} trials left; the same command goes on from here.")
        return 128 + signal.SIGINT
    if summary.left:
        console.print(
            f"{summary.left} trials left, open ones and what waits for them; the same command tries again."
        )
        return _OPEN
    return 1 if summary.table.failures or summary.table.fruitless else 0


def _print_faults(console: Console, faults: Faults) -> None:
    """Print a line for each network that could not be kept, and for each trial that is open."""
    for key, why in faults.unsaved.items():
        console.print(f"warning: the network of {key} could not be kept, its result is: {why}", markup=False)
    for trial in faults.open:
        console.print(
            f"open: {trial.key} {trial.arm}: {trial.fault}; {trial.remedy}", markup=False, style="red"
        )
