"""Commands that look into what is recorded."""

from __future__ import annotations

import json
import math
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

from topk_platform.cli.standing import standing
from topk_platform.errors import StoreError, UserError, reason
from topk_platform.identity import told
from topk_platform.specs.checks import check_place

if TYPE_CHECKING:
    from topk_platform.records import Found, Ledger, Row, Store
    from topk_platform.running.faults import Faults
    from topk_platform.running.planning import Plan
    from topk_platform.running.probing import Probe
    from topk_platform.running.study import Summary
    from topk_platform.specs import Study

__all__ = [
    "DataOption",
    "StoreOption",
    "add_to",
    "check_price",
    "named_place",
    "print_plan",
    "print_probe",
    "print_summary",
]

_OPEN = 3  # the exit code where faults left trials without a result
_PARTIAL = 4  # where the run has used up what it might spend


def named_place(option: typer.CallbackParam, value: str | None) -> str | None:
    """Return an option's value, a path or an address; raise ``UserError`` if it is blank."""
    if value is not None:
        check_place(option.opts[0], value)
    return value


def check_price(price: float | None) -> None:
    """Raise ``UserError`` for a price that is not positive."""
    if price is not None and not (math.isfinite(price) and price > 0):
        raise UserError(f"--price must be above 0, got {price}")


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
    """Show what the store holds: trials by study, arm, phase and how they ended; what is open, and who drives it.

    And how well early validation tells of the final one, which is what stopping trials early relies on.
    """
    from topk_platform.records import Ledger, Store  # noqa: PLC0415

    console, place = Console(), Store.open(store)
    shown, problems = 0, []
    for study in place.folders():
        try:
            shown += _show_status(console, place, study)
        except StoreError as error:
            if Ledger(
                place.at(study), study
            ).exists:  # else a folder of something else, such as MLflow's artifacts
                problems.append(error)
    for problem in problems:
        typer.echo(f"topk: {problem}", err=True)
    if problems:
        raise typer.Exit(2)
    if not shown:
        raise UserError(f"store {store!r} holds no study")


def _show_status(console: Console, place: Store, study: str) -> bool:
    """Show what a store holds of a study; return whether it is one."""
    from topk_platform.cli.early import early_table  # noqa: PLC0415
    from topk_platform.records import Ledger  # noqa: PLC0415

    ledger = Ledger.open(place, study)
    if not ledger.exists:
        return False
    rows = ledger.rows()
    console.print(_status_table(ledger, rows))
    if (early := early_table(ledger, _counting(ledger, rows))) is not None:
        console.print(early)
    for line in standing(ledger):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return True


def _status_table(ledger: Ledger, rows: Sequence[Row]) -> Table:
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


def _counting(ledger: Ledger, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that counted in the last run."""
    counted = ledger.identities()
    return [row for row in rows if row["arm_id"] in counted and not counted[row["arm_id"]].excludes(row)]


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


def print_plan(console: Console, plan: Plan, price: float | None = None) -> None:
    """Print a plan.

    Args:
        console: Where.
        plan: The plan.
        price: Of an hour, see :meth:`~topk_platform.running.planning.Plan.cost`; None tells of no cost.
    """
    study = plan.study
    cost = "" if price is None else f", which costs {plan.cost(price):.2f} at {price:g} an hour"
    table = Table("arm", "search", "confirm", "left", "s/trial", title=study.name, title_justify="left")
    for arm in plan.arms:
        seconds = f"{arm.trial_seconds:.2f}" + ("" if arm.measured else " (guess)")
        trials = study.trials if arm.arm.searches else 0
        done = f"{arm.searched}/{trials}", f"{arm.confirmed}/{study.seeds * study.points(arm.arm)}"
        table.add_row(arm.arm.name, *done, str(arm.left), seconds)
    console.print(table)
    console.print(
        f"{plan.left} trials left, about {_duration(plan.seconds)} of training on one worker at most{cost}",
        highlight=False,
    )
    if plan.left:
        console.print(f"At most {_feeds(plan)} can be busy at once", highlight=False)


def _feeds(plan: Plan) -> str:
    parts = {"search": plan.search_workers, "confirmation": plan.confirm_workers}
    return " and ".join(f"{_workers(plan.study, n)} in the {name}" for name, n in parts.items() if n)


def _workers(study: Study, count: int) -> str:
    told = f"{count} worker{'s' if count > 1 else ''}"
    gpus = math.ceil(count * study.gpus)
    return told if study.device == "cpu" else f"{told} ({gpus} GPU{'s' if gpus > 1 else ''})"


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

    It is 130 after an interrupt; else 3 if faults left trials without a result; else 4 if a limit of this run is used
    up; else 1 if a trial failed or an arm ended without a result.
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
            f"MLflow was not written: {reason(summary.tracking_error)}; `topk sync` fills it in, or the next run",
            markup=False,
        )
    for key, arm, why in summary.table.failures:
        console.print(f"failed: {key} {arm}: {why}", markup=False, style="red")
    _print_faults(console, summary.faults)
    if summary.interrupted:
        console.print(f"Interrupted with {summary.left} trials left; the same command goes on from here.")
        return 128 + signal.SIGINT
    if summary.partial and not summary.faults.open:
        console.print(
            f"Partial: {summary.partial} used up with {summary.left} trials left; the same command goes on from here.",
            highlight=False,
        )
        return _PARTIAL
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
        console.print(str(trial), markup=False, style="red")
