"""The command ``topk``: the list of its commands, its exit codes, and how errors are shown.

A command's module is imported only when the command is typed. So these modules import all that they need at their top,
and help and completion stay fast. The texts of the help are the docstrings of the commands' functions, read from their
files: paragraphs, of which the last is an example.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from topk_platform.cli.consoles import MEANINGS, Exit, escape_unknown_characters, say
from topk_platform.cli.studies import find_modules_here
from topk_platform.errors import UserError, is_of_users_code, location_of, masked, reason
from topk_platform.terminal import printable

__all__ = ["COMMANDS", "CommandGroup", "app", "load_command", "main"]

_DEBUG = "--debug"

_CODES = "\n".join(f"{int(code)}: {meaning}" for code, meaning in MEANINGS.items())
_EPILOG = f"Exit codes:\n{_CODES}\n\nStart with: topk run letters_quick"

_PANELS = {
    "Studies": {
        "new": "new.new",
        "list": "list_command",
        "plan": "planning",
        "run": "run_command",
        "status": "status",
    },
    "Results": {**dict.fromkeys(("table", "plot", "report"), "showing"), "nearest": "nearest"},
    "Trials": dict.fromkeys(("replay", "ui"), "inspecting"),
    "Taking results elsewhere": dict.fromkeys(("export", "predict"), "export"),
    "Upkeep": dict.fromkeys(("sync", "repair", "merge"), "upkeep"),
}

COMMANDS = {name: (panel, module) for panel, modules in _PANELS.items() for name, module in modules.items()}
"""The heading in ``topk --help`` and the module of each command, by name, in the order of the help.

A command's function has its name, or ``NAME_`` where Python has a function of that name.
"""

_MEANT = {
    "new": "init create",
    "list": "ls studies",
    "plan": "check doctor estimate",
    "run": "start train search resume continue",
    "status": "progress watch",
    "table": "show results view print claims",
    "plot": "draw figure graph",
    "report": "page html summary",
    "nearest": "recommend suggest",
    "replay": "inspect retrain",
    "ui": "mlflow dashboard",
    "export": "save",
    "predict": "guess classify",
    "repair": "fix",
    "merge": "copy",
}
"""Words that people type for a command."""


def load_command(name: str) -> Any:
    """Import a command's module and return the command, as a Typer command with all its options."""
    panel, path = COMMANDS[name]
    module = importlib.import_module(f"topk_platform.cli.{path}")
    alone = typer.Typer(add_completion=False)
    *paragraphs, example = _paragraphs(name)
    function = getattr(module, name, None) or getattr(module, f"{name}_")
    alone.command(name, cls=_Command, help="\n\n".join(paragraphs), epilog=example, rich_help_panel=panel)(
        function
    )
    return typer.main.get_command(alone)


def _paragraphs(name: str) -> list[str]:
    """Return a command's docstring by paragraphs, each on one line; its module is read and not imported."""
    file = Path(__file__).parent / f"{COMMANDS[name][1].replace('.', '/')}.py"
    functions = (node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef))
    function = next(node for node in functions if node.name in (name, f"{name}_"))
    return [" ".join(paragraph.split()) for paragraph in str(ast.get_docstring(function)).split("\n\n")]


def _untyped_flags(parameters: list[Any]) -> list[Any]:
    """Return parameters whose flags show no type in the help: they take no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped_flags(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """The group of the commands. Until a command is typed, it has only the name, panel and summary of each."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (panel, _) in COMMANDS.items():
            self.add_command(TyperCommand(name, rich_help_panel=panel))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options before a command."""
        return _untyped_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its summary."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.help = _paragraphs(cmd_name)[0]
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that was typed, with its options."""
        meant = next((name for name, words in _MEANT.items() if args[0] in words.split()), None)
        if meant is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load_command(name), rest


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
