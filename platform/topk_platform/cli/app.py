"""The command ``topk``: its commands in groups, its exit codes, and how errors are shown."""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer

from topk_platform.cli import (
    adopting,
    asking,
    doctoring,
    exporting,
    findings,
    inspecting,
    listing,
    planning,
    recommending,
    reporting,
    running,
    standing,
    starting,
    upkeep,
)
from topk_platform.cli.codes import MEANINGS, Exit
from topk_platform.cli.consoles import say
from topk_platform.cli.studies import find_modules_here
from topk_platform.errors import UserError, is_of_users_code, masked, place_of, reason
from topk_platform.terminal import printable

__all__ = ["app", "main"]

_DEBUG = "--debug"

_COMMANDS: dict[str, tuple[tuple[Callable[..., Any], str], ...]] = {
    "Studies": (
        (starting.new, "topk new my_birds --from photos/birds --network resnet18 -k 5"),
        (listing.list_, "topk list"),
        (planning.plan, "topk plan letters_quick --price 0.5"),
        (planning.probe, "topk probe garcin2022_plantnet --memory 40"),
        (running.run, "topk run letters_quick --only 'noise-0.8/*' --max-hours 2"),
        (standing.status, "topk status --store s3://bucket/runs --watch"),
    ),
    "Results": (
        (reporting.table, "topk table letters_quick --format latex > table.tex"),
        (reporting.plot, "topk plot letters_map map --to map.pdf"),
        (reporting.report, "topk report letters_quick --to letters.html"),
        (asking.claims, "topk claims ring_modes --json"),
        (asking.tuning, "topk tuning letters_quick --within 1"),
        (asking.checklist, "topk checklist letters_quick > checklist.md"),
        (findings.findings, "topk findings letters --plot map --to map.pdf"),
        (
            recommending.recommend,
            "topk recommend --classes 5000 --images 300000 --imbalance 100 --noise 0.1 --k 5",
        ),
    ),
    "Trials": (
        (inspecting.show, "topk show 3f2a"),
        (inspecting.replay, "topk replay 3f2a"),
        (inspecting.ui, "topk ui --port 5001"),
    ),
    "Taking results elsewhere": (
        (exporting.export, "topk export letters_quick --arm noise-0.8/mlp/smooth_topk_svm --to winner"),
        (exporting.predict, "topk predict winner photo.png -k 3"),
        (exporting.bundle, "topk bundle letters_quick --to letters.topk"),
        (exporting.verify, "topk verify letters.topk --replay 3"),
    ),
    "Upkeep": (
        (doctoring.doctor, "topk doctor letters_quick --address 10.0.0.1:6379 --store s3://bucket/runs"),
        (upkeep.sync, "topk sync letters_quick --mlflow http://127.0.0.1:5000"),
        (adopting.adopt, "topk adopt letters_quick --replay 3"),
        (upkeep.repair, "topk repair letters_quick"),
    ),
}

_EPILOG = "\n\n".join(
    [
        "Exit codes:",
        *(f"{int(code)}: {meaning}" for code, meaning in MEANINGS.items()),
        "Start with: topk run letters_quick",
    ]
)

app = typer.Typer(
    name="topk",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=_EPILOG,
)
for _panel, _commands in _COMMANDS.items():
    for _command, _example in _commands:
        _name = _command.__name__.rstrip("_")
        app.command(_name, rich_help_panel=_panel, epilog=f"Example: {_example}")(_command)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"topk {importlib.metadata.version('topk-studies')}")
        raise typer.Exit


@app.callback()
def _topk(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
    _debug: Annotated[
        bool, typer.Option(_DEBUG, help="Show the traceback of an error; may stand anywhere in the command.")
    ] = False,
) -> None:
    """Studies of top-K classification losses: run them, look into them, print their tables."""


def main() -> None:
    """Run the command: errors that the user can fix, and errors of the program itself, are shown in one line each.

    ``--debug``, anywhere in the command, shows the traceback of either. For the exit codes see
    :class:`~topk_platform.cli.codes.Exit`.
    """
    find_modules_here()
    arguments = [argument for argument in sys.argv[1:] if argument != _DEBUG]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(args=arguments, prog_name="topk")
    except UserError as error:
        _end(error, f"topk: {error}", Exit.BAD_INPUT, debug)
    except Exception as error:  # noqa: BLE001 - told in a line, its traceback is kept
        kept = "" if debug else f"; its traceback is in {_kept(error)}"
        theirs = is_of_users_code(error)
        what = "your code raised" if theirs else "unexpected"
        line = f"topk: {what} {type(error).__name__}: {reason(error)} ({place_of(error)}){kept}"
        _end(error, line, Exit.BAD_INPUT if theirs else Exit.UNEXPECTED, debug)


def _end(error: Exception, line: str, code: Exit, debug: bool) -> None:
    if debug:
        say(_traceback(error), err=True, nl=False)
    say(printable(masked(line), line=True), err=True)
    sys.exit(code)


def _traceback(error: Exception) -> str:
    return masked("".join(traceback.format_exception(error)))


def _kept(error: Exception) -> str:
    """Write an error's traceback into a file, so that the cause of a long run's end is kept; return the file's name."""
    with tempfile.NamedTemporaryFile("w", prefix="topk-error-", suffix=".txt", delete=False) as file:
        file.write(_traceback(error))
    return file.name
