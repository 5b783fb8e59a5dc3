"""``topk findings``: a study's table and plots from a small file, without its store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topk_platform.cli.consoles import make_console, print_json, print_rows, say
from topk_platform.cli.options import JsonOption, MetricsOption, check_format
from topk_platform.cli.studies import shipped_findings
from topk_platform.errors import UserError, reason, unknown_name
from topk_platform.reports.catalogue import PLOT_FILES, PLOTS, TABLE_FORMATS, drawn_from, or_of

if TYPE_CHECKING:
    from topk_platform.results.findings import Findings

__all__ = ["findings"]

_SUFFIXES = [f".{kind}" for kind in PLOT_FILES]


def findings(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A study whose findings are shipped, or a file of findings; by default all that are shipped."
        ),
    ] = None,
    output: Annotated[str, typer.Option("--format", help=f"{or_of(TABLE_FORMATS)}.")] = "rich",
    metric: MetricsOption = None,
    transpose: Annotated[bool, typer.Option("--transpose", help="Losses as columns.")] = False,
    plot: Annotated[
        str,
        typer.Option("--plot", help=f"Plot to write into a file: {drawn_from('table')}."),
    ] = "",
    to: Annotated[
        Path | None,
        typer.Option("--to", help=f"The plot's file, {or_of(_SUFFIXES)}; by default STUDY-KIND.svg."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print what studies found elsewhere: the table, or a plot, of findings that are shipped or in a file."""
    check_format(output, *TABLE_FORMATS, json=json)
    if to is not None and (not plot or to.suffix not in _SUFFIXES):
        raise UserError(f"--to belongs to --plot and must end in {or_of(_SUFFIXES)}, got {str(to)!r}")
    if name is None:
        _list(json=json)
        return
    found = _named(name)
    if plot:
        _plot(found, plot, to, (metric or [""])[0])
        return
    from topk_platform.reports.tables import as_format  # noqa: PLC0415 - pyarrow and numpy
    from topk_platform.reports.tables.data import to_rows  # noqa: PLC0415 - as above

    if json:
        print_rows(to_rows(found.table, metric or ()))
        return
    made = as_format(output, found.table, metric or (), transpose=transpose)
    if output == "rich":
        make_console().print(made, found.origin())
    else:
        say(str(made), nl=False)


def _list(*, json: bool) -> None:
    found = shipped_findings()
    if json:
        print_json([{"study": one.study.name, **one.made} for one in found])
    else:
        for one in found:
            say(one.origin())
        if not found:
            say("No findings are shipped.")


def _named(name: str) -> Findings:
    from topk_platform.results.findings import Findings  # noqa: PLC0415 - pyarrow and numpy

    if name.endswith(".gz"):
        return Findings.read(name)
    shipped = {one.study.name: one for one in shipped_findings()}
    if name not in shipped:
        raise unknown_name("study whose findings are shipped", name, shipped)
    return shipped[name]


def _plot(found: Findings, kind: str, to: Path | None, metric: str) -> None:
    from topk_platform.reports import plots  # noqa: PLC0415 - pyarrow and numpy

    if kind not in PLOTS:
        raise unknown_name("kind of plot", kind, PLOTS)
    path = to or Path(f"{found.study.name}-{kind}.svg")
    made = plots.draw(kind, plots.plotted_table(found.table, metric))
    try:
        path.write_bytes(plots.written(made, path.suffix[1:]))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {reason(error)}") from error
    say(f"wrote {path}")
