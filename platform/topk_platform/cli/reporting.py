"""Commands that show what came out: tables, plots, and the page that one sends to a colleague."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from topk_platform.cli.inspecting import StoreOption
from topk_platform.cli.studies import load_study, smoke_study
from topk_platform.errors import UserError
from topk_platform.specs import Study

__all__ = ["add_to"]

_Study = Annotated[str, typer.Argument(help="A name that `topk list` shows, or package.module:attribute.")]
_Trials = Annotated[int | None, typer.Option("--trials", help="Search trials per arm.")]
_Seeds = Annotated[int | None, typer.Option("--seeds", help="Confirmation seeds per arm.")]
_Smoke = Annotated[bool, typer.Option("--smoke", help="The study's smoke run.")]
_Only = Annotated[
    list[str] | None, typer.Option("--only", help="A glob over arms, regime/model/loss; may be given again.")
]
_Metrics = Annotated[
    list[str] | None, typer.Option("--metric", help="Such as top5 or macro_top3; may be given again.")
]
_FORMATS = ("rich", "md", "csv", "latex", "html")


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (table, plot, report):
        app.command()(command)


def _named(name: str, smoke: bool) -> Study:
    study = load_study(name)
    return smoke_study(study, here=True) if smoke else study


def table(
    study: _Study,
    store: StoreOption = "runs",
    output: Annotated[str, typer.Option("--format", help="rich, md, csv, latex or html.")] = "rich",
    trials: _Trials = None,
    seeds: _Seeds = None,
    only: _Only = None,
    metric: _Metrics = None,
    transpose: Annotated[bool, typer.Option("--transpose", help="Losses as columns.")] = False,
    smoke: _Smoke = False,
) -> None:
    """Print a study's table from what the store holds; run nothing."""
    if output not in _FORMATS:
        raise UserError(f"--format must be {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}, got {output!r}")
    wanted = _named(study, smoke)
    from topk_platform.reports.formats import as_format  # noqa: PLC0415 - pyarrow and numpy
    from topk_platform.reports.reading import table as read_table  # noqa: PLC0415 - as above

    found = read_table(wanted, store=store, trials=trials, seeds=seeds, only=only)
    made = as_format(output, found, metric or (), transpose=transpose)
    if output == "rich":
        Console().print(made)
    else:
        typer.echo(str(made), nl=False)


def plot(
    study: _Study,
    kind: Annotated[
        str,
        typer.Argument(
            help="accuracy, differences, map, topk, front, ranks, profile, regions, training, tuning, search, "
            "importance or levels."
        ),
    ],
    store: StoreOption = "runs",
    to: Annotated[
        Path | None,
        typer.Option("--to", help="The file, .svg, .png or .pdf; by default STUDY-KIND.svg here."),
    ] = None,
    metric: Annotated[str, typer.Option("--metric", help="Such as top5; by default what selects.")] = "",
    by: Annotated[
        str,
        typer.Option(
            "--by", help="Of accuracy: a fixed parameter, or K; by default the number that regimes differ in."
        ),
    ] = "",
    trials: _Trials = None,
    seeds: _Seeds = None,
    only: _Only = None,
    smoke: _Smoke = False,
) -> None:
    """Plot what the store holds of a study, into a file."""
    wanted = _named(study, smoke)
    path = to or Path(f"{wanted.name}-{kind}.svg")
    _check_suffix(path)
    from topk_platform.reports import plots  # noqa: PLC0415 - pyarrow and numpy

    found = plots.plot(wanted, kind, store=store, metric=metric, by=by, trials=trials, seeds=seeds, only=only)
    _write(path, plots.written(found, path.suffix[1:]))


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise UserError(f"--to must end in .svg, .png or .pdf, got {str(path)!r}")


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    typer.echo(f"wrote {path}")


def report(
    study: _Study,
    store: StoreOption = "runs",
    to: Annotated[Path | None, typer.Option("--to", help="The file; by default STUDY.html here.")] = None,
    trials: _Trials = None,
    seeds: _Seeds = None,
    smoke: _Smoke = False,
) -> None:
    """Write one HTML page of all that a study says, for colleagues: it needs nothing else, not even a network."""
    wanted = _named(study, smoke)
    path = to or Path(f"{wanted.name}.html")
    if path.suffix != ".html":
        raise UserError(f"--to must end in .html, got {str(path)!r}")
    from topk_platform.reports.page import report as page_of  # noqa: PLC0415 - pyarrow and numpy

    _write(path, page_of(wanted, store=store, trials=trials, seeds=seeds).encode())
