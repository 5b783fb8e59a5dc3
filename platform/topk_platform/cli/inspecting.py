"""Commands that look into what is recorded."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from topk_platform.cli.consoles import make_console
from topk_platform.cli.rows import duration
from topk_platform.errors import UserError
from topk_platform.specs.checks import check_place

if TYPE_CHECKING:
    from topk_platform.records import Found
    from topk_platform.running.planning import Plan
    from topk_platform.running.probing import Probe
    from topk_platform.specs import Study

__all__ = [
    "DataOption",
    "StoreOption",
    "add_to",
    "check_price",
    "named_place",
    "print_plan",
    "print_probe",
]


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
    for command in (show, replay, ui):
        app.command()(command)


def show(key: KeyArgument, store: StoreOption = "runs") -> None:
    """Show one trial: how it ended, its configuration, its epochs, and how to run it alone."""
    from topk_platform.records import find  # noqa: PLC0415

    found = find(key, store)
    row, console = found.row, make_console()
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
        f"{plan.left} trials left, about {duration(plan.seconds)} of training on one worker at most{cost}",
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
