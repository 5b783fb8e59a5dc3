"""Arguments and options that several commands share, with one meaning and one help text each."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import typer

from topk_platform.cli.studies import as_reference, known_studies, load_study
from topk_platform.errors import UserError
from topk_platform.references import is_reference
from topk_platform.running.run_options import help_of
from topk_platform.specs.checks import check_not_blank
from topk_platform.specs.smoke import SMOKE

__all__ = [
    "Address",
    "Data",
    "Download",
    "Json",
    "Metrics",
    "Mlflow",
    "Only",
    "Recorded",
    "Searches",
    "Seeds",
    "Smoke",
    "Store",
    "Study",
    "StudyOrFindings",
    "To",
    "Trials",
    "Trust",
    "check_format",
    "nonblank",
    "recorded_name",
    "under",
]


def nonblank(option: typer.CallbackParam, value: Any) -> Any:
    """Return an option's value, a path or an address, with ``~`` as the home folder; refuse blank ones.

    Shells leave ``~`` as it is in quotes and after an equals sign.

    Raises:
        UserError: if it is blank.
    """
    if value is None:
        return None
    check_not_blank(option.opts[0], value)
    return type(value)(os.path.expanduser(value))


def check_format(output: str, *known: str, json: bool = False) -> None:
    """Raise ``UserError`` for a ``--format`` that is not known, or that is given beside ``--json``."""
    if output not in known:
        raise UserError(f"--format must be {', '.join(known[:-1])} or {known[-1]}, got {output!r}")
    if json and output != known[0]:
        raise UserError(f"--json and --format {output} exclude each other: leave one out")


def recorded_name(study: str, smoke: bool) -> str:
    """Return the name of a study's folder, or of its smoke run's folder; ``study`` is its name or reference."""
    study = load_study(study).name if is_reference(study) else study
    return f"{study}{SMOKE}" if smoke and not study.endswith(SMOKE) else study


def under(heading: str) -> Callable[..., Any]:
    """Return ``typer.Option`` for options that the help lists under a heading."""
    return partial(typer.Option, rich_help_panel=heading)


_size, _location, _output = under("Which part of the study"), under("Where things are"), under("Output")


def _begins(incomplete: str) -> list[str]:
    """Return the studies whose names begin like this, for shell completion; none if an error occurs."""
    with suppress(Exception):  # an error must not appear in the shell's command line
        return [name for name in known_studies() if name.startswith(incomplete)]
    return []


_study = partial(typer.Argument, autocompletion=_begins, callback=as_reference)
_NAMES = "A name that `topk list` shows, a file such as birds.py, package.module:attribute"
Study = Annotated[str, _study(help=f"{_NAMES}.")]
StudyOrFindings = Annotated[str, _study(help=f"{_NAMES}, or a file of findings.")]
Recorded = Annotated[str, _study(help=f"{_NAMES}, or a name that `topk status` shows.")]
_HELP = help_of()
Trials = Annotated[int | None, _size("--trials", help=_HELP["trials"])]
Seeds = Annotated[int | None, _size("--seeds", help=_HELP["seeds"])]
Searches = Annotated[int | None, _size("--searches", help=_HELP["searches"])]
Only = Annotated[list[str] | None, _size("--only", help=_HELP["only"])]
Smoke = Annotated[
    bool,
    _size(
        "--smoke",
        help="A small version of the study that takes seconds and needs no large data, GPU or pretrained weights. Its "
        "results have a name of their own.",
    ),
]
Store = Annotated[str, _location("--store", help=_HELP["store"], callback=nonblank)]
Data = Annotated[str | None, _location("--data", help=_HELP["data"], callback=nonblank)]
Download = Annotated[bool, _location("--download", help=_HELP["download"])]
Mlflow = Annotated[str | None, _location("--mlflow", help=_HELP["mlflow"], callback=nonblank)]
Address = Annotated[str | None, _location("--address", help=_HELP["address"], callback=nonblank)]
Trust = Annotated[
    list[str] | None,
    under("Care")(
        "--trust",
        metavar="MODULE",
        help="A module whose code the file may name, such as my_lab, with its submodules; may be given several "
        "times. Code of this package needs no trust.",
    ),
]
Json = Annotated[bool, _output("--json", help="Print JSON, for programs.")]
To = Annotated[str, typer.Option("--to", help="Where to write it.", callback=nonblank)]
Metrics = Annotated[
    list[str] | None,
    _output("--metric", help="A metric, such as top5 or macro_top3; may be given several times."),
]
