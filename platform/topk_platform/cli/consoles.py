"""What a command gives back: text for people, JSON for programs, files, and an exit code."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from enum import IntEnum
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from topk_platform.errors import UserError, reason
from topk_platform.reports.catalogue import or_of
from topk_platform.terminal import PlainConsole, printable

__all__ = [
    "MEANINGS",
    "Exit",
    "check_suffix",
    "escape_unknown_characters",
    "make_console",
    "plain",
    "print_json",
    "print_rows",
    "say",
    "show",
    "write_file",
]

_PIPE_WIDTH = 100_000  # lines are cut or folded at the terminal's width; a pipe or a file has none


class Exit(IntEnum):
    """The exit codes of ``topk``; codes above 128 mean signals, as in any shell."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    OPEN = 3
    PARTIAL = 4
    UNEXPECTED = 5
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[Exit, str] = {
    Exit.DONE: "everything is done",
    Exit.FAILED: "a trial failed, an arm has no result, an input cannot be read, or a check shows a difference",
    Exit.BAD_INPUT: "bad input, an error in your own code, or a store that cannot be used; one line says which",
    Exit.OPEN: "faults of machines left trials without a result; the same command tries them again",
    Exit.PARTIAL: "a limit such as --max-hours is reached; the same command goes on",
    Exit.UNEXPECTED: "an error of the program itself; the line names a file with its traceback",
    Exit.HUNG_UP: "ended by SIGHUP, as its terminal was closed; the same command goes on",
    Exit.INTERRUPTED: "interrupted by Ctrl-C; the same command goes on",
    Exit.TERMINATED: "ended by SIGTERM; the same command goes on",
}
"""The meaning of each code in one line."""


def escape_unknown_characters() -> None:
    r"""Let stdout and stderr write characters that their encoding lacks as escapes such as ``\u2026``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def make_console(*, stderr: bool = False) -> Console:
    """Return the console to print to, as wide as its terminal; without a terminal, lines are not cut."""
    console = PlainConsole(stderr=stderr)
    return console if console.is_terminal else PlainConsole(stderr=stderr, width=_PIPE_WIDTH)


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a text with its control characters written out.

    Args:
        text: The text; other objects are converted by ``str``.
        err: Whether to print it on stderr.
        nl: Whether to end the line.
    """
    typer.echo(printable(str(text)), err=err, nl=nl)


def show(output: str, shown: object) -> None:
    """Print the result of a format: a rich table on the console, any other result as a text.

    Args:
        output: The name of the format.
        shown: The result.
    """
    if output == "rich":
        make_console().print(shown)
    else:
        say(shown, nl=False)


def check_suffix(path: Path, suffixes: Iterable[str], of: str = "") -> None:
    """Raise ``UserError`` unless the file's name ends as files of its kind do, so that no other file is replaced.

    Args:
        path: The file that ``--to`` names.
        suffixes: The endings.
        of: When the ending is needed, such as ``"with --format csv"``; empty if that is clear.
    """
    endings = list(suffixes)
    if not any(path.name.endswith(ending) and path.name != ending for ending in endings):
        raise UserError(f"--to must end in {or_of(endings)}{f' {of}' if of else ''}, got {str(path)!r}")


def write_file(path: Path, content: bytes) -> None:
    """Write a file; raise ``UserError`` if it cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {reason(error)}") from error


def plain(value: Any) -> Any:
    """Return a value as JSON types: dataclasses as objects, numbers that are not finite as null.

    Example:
        >>> from topk_platform.specs import Regime
        >>> plain({"x": (1, float("nan"))}), plain(Regime("clean", "digits"))["dataset"]
        ({'x': [1, None]}, 'digits')
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> str | bool | int | float | None:
    if callable(item := getattr(value, "item", None)):  # a number or a truth value of numpy
        value = item()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)


def print_json(value: Any, *, lines: bool = False) -> None:
    """Print a value as JSON, in ASCII: a terminal obeys no character of a text in it.

    Args:
        value: A value that :func:`plain` takes.
        lines: Whether to print it on one line.
    """
    typer.echo(json.dumps(plain(value), indent=None if lines else 1).replace("\x7f", r"\u007f"))


def print_rows(rows: Iterable[Mapping[str, object]]) -> None:
    """Print the rows of a table as JSON, one object per row; empty values are null.

    Args:
        rows: The values of each row by column.
    """
    print_json([{name: None if value == "" else value for name, value in row.items()} for row in rows])
