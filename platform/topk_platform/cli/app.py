"""The command ``topk``: its commands in groups, its exit codes, and how errors are shown."""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
import traceback
from typing import Annotated

import typer

from topk_platform.cli.consoles import MEANINGS, Exit, escape_unknown_characters, say
from topk_platform.cli.group import CommandGroup
from topk_platform.cli.studies import find_modules_here
from topk_platform.errors import UserError, is_of_users_code, location_of, masked, reason
from topk_platform.terminal import printable

__all__ = ["app", "main"]

_DEBUG = "--debug"

_CODES = "\n".join(f"{int(code)}: {meaning}" for code, meaning in MEANINGS.items())
_EPILOG = f"Exit codes:\n{_CODES}\n\nStart with: topk run letters_quick"

app = typer.Typer(
    name="topk",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=_EPILOG,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"topk {importlib.metadata.version('topk-studies')}")
        raise typer.Exit


@app.callback()
def _topk(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    _debug: Annotated[
        bool, typer.Option(_DEBUG, help="Show the traceback of an error; may stand anywhere in the command.")
    ] = False,
) -> None:
    """Studies of top-K classification losses: run them, look into them, print their tables."""


def main() -> None:
    """Run the command. Errors are shown in one line, both those that the user can fix and those of the program itself.

    ``--debug``, anywhere in the command, shows the traceback. For the exit codes see
    :class:`~topk_platform.cli.consoles.Exit`.
    """
    escape_unknown_characters()
    arguments = [argument for argument in sys.argv[1:] if argument != _DEBUG]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        find_modules_here()
        app(args=arguments, prog_name="topk")
    except UserError as error:
        _end(error, f"topk: {error}", Exit.BAD_INPUT, debug)
    except Exception as error:  # noqa: BLE001 - shown in one line; its traceback is kept in a file
        kept = "" if debug else f"; {_kept(error)}"
        theirs = is_of_users_code(error)
        what = "your code raised" if theirs else "unexpected"
        line = f"topk: {what} {type(error).__name__}: {reason(error)} ({location_of(error)}){kept}"
        _end(error, line, Exit.BAD_INPUT if theirs else Exit.UNEXPECTED, debug)


def _end(error: Exception, line: str, code: Exit, debug: bool) -> None:
    if debug:
        say(_traceback(error), err=True, nl=False)
    say(printable(masked(line), line=True), err=True)
    sys.exit(code)


def _traceback(error: Exception) -> str:
    return masked("".join(traceback.format_exception(error)))


def _kept(error: Exception) -> str:
    """Write an error's traceback into a file, so that it is kept after a long run; return where it is, in words."""
    try:
        with tempfile.NamedTemporaryFile(prefix="topk-error-", suffix=".txt", delete=False) as file:
            file.write(_traceback(error).encode(errors="backslashreplace"))
    except OSError as full:  # a full disk may be the error's own cause
        return f"its traceback cannot be kept ({reason(full)}): {_DEBUG} shows it"
    return f"its traceback is in {file.name}"
