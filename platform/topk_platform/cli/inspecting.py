"""Commands about one trial, and MLflow's UI for all trials."""

from __future__ import annotations

import json as json_
import os
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.table import Table

from topk_platform.cli import options
from topk_platform.cli.consoles import Exit, make_console, print_json, say
from topk_platform.cli.options import nonblank
from topk_platform.errors import UserError
from topk_platform.own_measures import recorded_values
from topk_platform.records.recorded import RecordedTrial, find
from topk_platform.records.storage.store import Store
from topk_platform.running.cluster.reaching import is_loopback
from topk_platform.serving.replaying import Replay
from topk_platform.serving.replaying import replay as replay_trial
from topk_platform.specs.checks import first_few
from topk_platform.tracking.feed import run_pages, tracking_uri

__all__ = ["replay", "ui"]

_NAMED = 8  # differences in a line

KeyArgument = Annotated[str, typer.Argument(help="A trial's key, or its first letters.")]


def replay(
    key: KeyArgument,
    no_train: Annotated[bool, typer.Option("--no-train", help="Only print the record.")] = False,
    store: options.Store = "runs",
    data: options.Data = None,
    trust: options.Trust = None,
    json: options.Json = False,
) -> None:
    """Print the record of one trial, train it again, alone in this process, and compare.

    The record says how the trial ended, and has its configuration and its epochs. Code in files of your own is run if
    the record names it; code of an installed package needs --trust. Exit code 1: something differs.

    Example: topk replay 3f2a
    """
    if no_train and (data is not None or trust):
        raise UserError("--data and --trust are for a trial that is trained: leave --no-train out")
    recorded = find(key, store)
    if not json:
        _print_record(recorded)
    replayed = None if no_train else replay_trial(recorded.row["key"], store, data, trust=trust or ())
    if json:
        print_json({**_as_data(recorded), **({"replay": _replayed(replayed)} if replayed else {})})
    elif replayed:
        _print_replay(replayed)
    raise typer.Exit(Exit.FAILED if replayed and replayed.differences else Exit.DONE)


def _as_data(recorded: RecordedTrial) -> dict[str, Any]:
    row = recorded.row
    read = {name: json_.loads(row[name]) for name in ("config", "values", "versions") if row[name]}
    return {**row, **read, "epochs": recorded.epochs}


def _print_record(recorded: RecordedTrial) -> None:
    row, console = recorded.row, make_console()
    console.print(f"[bold]{row['key']}[/]  {row['arm']}  {row['phase']} {row['number']}, seed {row['seed']}")
    console.print(f"{row['status']}{': ' + row['reason'] if row['reason'] else ''}", markup=False)
    parameters = {f"param.{name}": value for name, value in json_.loads(row["values"]).items()}
    own = {f"own.{name}": value for name, value in recorded_values(row.get("own")).items()}
    for name, value in {**parameters, **row, **own}.items():
        if value is not None and name.startswith(("param.", "validation.", "test.", "own.")):
            # The configuration below has all digits.
            shown = f"{value:.6g}" if isinstance(value, float) else value
            console.print(f"  {name:<28} {shown}", highlight=False)
    console.print(_epochs(recorded))
    console.print_json(json_.dumps(json_.loads(row["config"])))


def _epochs(recorded: RecordedTrial) -> Table:
    first = recorded.epochs[0] if recorded.epochs else {}
    metrics = [name for name, value in first.items() if name not in ("key", "epoch") and value is not None]
    table = Table("epoch", *metrics, title="epochs", title_justify="left")
    for row in recorded.epochs:
        table.add_row(
            str(row["epoch"]), *("" if row[name] is None else f"{row[name]:.4g}" for name in metrics)
        )
    return table


def _replayed(replayed: Replay) -> dict[str, Any]:
    record = replayed.record
    named = {"status": record.status, "reason": record.reason, "seconds": record.train_seconds}
    return {
        **named,
        "validation": record.validation,
        "test": record.test,
        "differing": list(replayed.differences),
        "largest": replayed.largest,
        "changed": replayed.changed,
        "environment": replayed.environment,
    }


def _print_replay(replayed: Replay) -> None:
    record = replayed.record
    why = f": {record.reason}" if record.reason else ""
    say(f"trained again: {record.status}{why} in {record.train_seconds:.2f} s")
    for name, value in {**record.validation, **(record.test or {})}.items():
        say(f"  {name:<16} {value:.6f}")
    if replayed.changed:
        say(f"the code has changed: {'; '.join(replayed.changed)}")
    if replayed.environment:
        say(f"another machine or other packages: {replayed.environment}")
    for name, value in replayed.largest.items():
        say(f"  {name:<28} differs by at most {value:.2g}")
    say(
        f"differs from its record in {first_few(list(replayed.differences), _NAMED)}"
        if replayed.differences
        else "the same as its record, bit for bit"
    )


def ui(
    store: options.Store = "runs",
    host: Annotated[str, typer.Option(help="Address to listen on.", callback=nonblank)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 5000,
) -> None:
    """Open MLflow's UI for the runs in a store; only this machine can reach it by default.

    Example: topk ui --port 5001
    """
    folder = Store.open(store).local
    if folder is None or not (folder / "mlflow.db").exists():
        raise UserError(
            f"store {store!r} holds no MLflow database; `topk run STUDY --store {shlex.quote(store)}` makes one if the "
            "store is a folder"
        )
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking_uri(folder)]
    command += ["--artifacts-destination", str(folder / "mlflow-artifacts")]
    command += ["--host", host, "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    _check_free(host, port)
    if not is_loopback(host):
        say(
            f"warning: MLflow asks for no password: everybody who reaches {host}:{port} can read and change all runs",
            err=True,
        )
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    say(f"MLflow on {address} (Ctrl-C ends it)")
    for name, page in run_pages(tracking_uri(folder)).items():
        say(f"  {name}: {address}{page}")
    raise typer.Exit(_served(command, environment))


def _served(command: list[str], environment: dict[str, str]) -> int:
    """Run a server until it ends or a signal arrives, end all its processes, and return the exit code.

    The server has its own process group, because MLflow's processes do not end each other.
    """
    handled = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in handled}
    with subprocess.Popen(command, env=environment, process_group=0) as server:  # noqa: S603 - our own interpreter
        try:
            return server.wait()
        except KeyboardInterrupt as interrupt:
            return 128 + (interrupt.args or [signal.SIGINT])[0]
        finally:
            with suppress(ProcessLookupError):  # all processes have ended already
                os.killpg(server.pid, signal.SIGTERM)
            for number, handler in before.items():
                signal.signal(number, handler)


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(number)


def _check_free(host: str, port: int) -> None:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"cannot listen on --host {host!r} and --port {port}: {error}; another --port may be free"
        ) from error
