"""Where commands write: to people, in a terminal or a pipe, or to programs as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import typer
from rich.console import Console

from topk_platform.running.progress.words import duration
from topk_platform.terminal import PlainConsole, printable

__all__ = ["duration", "make_console", "plain", "print_json", "print_rows", "say"]

# What JSON may hold as it is, and a terminal obeys: written as JSON writes other control characters.
_STEERING = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PIPE_WIDTH = 100_000  # a line is cut or folded where a terminal ends, and a pipe or a file ends nowhere


def make_console(*, stderr: bool = False) -> Console:
    """Return the console to print to: as wide as its terminal, or as wide as the output where there is no terminal."""
    console = PlainConsole(stderr=stderr)
    return console if console.is_terminal else PlainConsole(stderr=stderr, width=_PIPE_WIDTH)


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a text, in which a terminal obeys nothing.

    Args:
        text: The text; what is no text is printed as ``str`` shows it.
        err: Whether to print it on stderr.
        nl: Whether to end the line.
    """
    typer.echo(printable(str(text)), err=err, nl=nl)


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
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> str | bool | int | float | None:
    if callable(
        item := getattr(value, "item", None)
    ):  # numpy's numbers and truth values are none of Python's
        value = item()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)


def print_json(value: Any, *, lines: bool = False) -> None:
    """Print a value as JSON.

    Args:
        value: Anything that :func:`plain` takes.
        lines: Whether to print it on one line, as one of many.
    """
    text = json.dumps(plain(value), indent=None if lines else 1, ensure_ascii=False)
    typer.echo(_STEERING.sub(lambda found: f"\\u{ord(found.group()):04x}", text))


def print_rows(rows: Iterable[Mapping[str, object]]) -> None:
    """Print the rows of a table as JSON, an object for each; what is empty is null.

    Args:
        rows: Their values by column.
    """
    print_json([{name: None if value == "" else value for name, value in row.items()} for row in rows])
