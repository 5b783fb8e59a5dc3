"""The list of commands. A command's module is imported only when the command is typed.

So these modules import all that they need at their top, and help and completion stay fast. The texts of the help are
the docstrings of the commands' functions, read from their files: paragraphs, of which the last is an example.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["COMMANDS", "CommandGroup", "load_command"]

_PANELS = {
    "Studies": {
        "new": "new.new",
        "list": "listing",
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
