"""``topk findings``: a study's table and plots from a small file, without its store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.commands.conclusions import CLAIM_FORMATS, show_claims
from topk_platform.cli.consoles import make_console, print_json, print_rows, say, show, write_file
from topk_platform.cli.options import check_format, check_transpose
from topk_platform.cli.studies import shipped_findings
from topk_platform.errors import UserError, unknown_name
from topk_platform.reports import plots
from topk_platform.reports.catalogue import PLOT_FILES, PLOTS, TABLE_FORMATS, drawn_from, or_of
from topk_platform.reports.tables import as_format
from topk_platform.reports.tables.data import to_rows
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
    metric: options.Metrics = None,
    transpose: Annotated[bool, typer.Option("--transpose", help="Losses as columns.")] = False,
    claims: Annotated[
        bool, typer.Option("--claims", help="The verdicts on its claims, not its table.")
    ] = False,
    plot: Annotated[
        str,
        typer.Option("--plot", help=f"Plot to write into a file: {drawn_from('table')}."),
    ] = "",
    to: Annotated[
        Path | None,
        typer.Option("--to", help=f"The plot's file, {or_of(_SUFFIXES)}; by default STUDY-KIND.svg."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Print the findings of a study from a file or from this package: its table, its claims, or a plot.

    Example: topk findings letters --plot map --to map.pdf
    """
    check_format(output, *(CLAIM_FORMATS if claims else TABLE_FORMATS), json=json)
    check_transpose(output, transpose=transpose, json=json)
    if to is not None and (not plot or to.suffix not in _SUFFIXES):
        raise UserError(f"--to is for --plot and must end in {or_of(_SUFFIXES)}, got {str(to)!r}")
    many = len(metric or ())
    if name is None:
        if plot or claims or many or transpose or output != "rich":
            raise UserError(
                "--plot, --claims, --metric, --transpose and --format are for the findings of a study: name it"
            )
        _list(json=json)
        return
    if claims and (plot or many or transpose):
        raise UserError("--claims excludes --plot, --metric and --transpose")
    if plot and (json or transpose or output != "rich" or many > 1):
        raise UserError("--plot excludes --json, --format and --transpose, and takes one --metric")
    shown = _named(name)
    if plot:
        _plot(shown, plot, to, (metric or [""])[0])
    elif claims:
        _claims(shown, output, json=json)
    elif json:
        print_rows(to_rows(shown.table, metric or ()))
    else:
        show(output, as_format(output, shown.table, metric or (), transpose=transpose))
        if output == "rich":
            make_console().print(shown.origin())


def _claims(findings_: Findings, output: str, *, json: bool) -> None:
    decisions = findings_.decisions()
    if not decisions:
        raise UserError(f"study {findings_.study.name} has no claims in these findings")
    show_claims(findings_.study.name, decisions, output, json=json)


def _list(*, json: bool) -> None:
    shipped = shipped_findings()
    if json:
        print_json([{"study": one.study.name, **one.made} for one in shipped])
    else:
        for one in shipped:
            say(one.origin())


def _named(name: str) -> Findings:
    if name.endswith(".gz"):
        return Findings.read(name)
    (shipped,) = shipped_findings(name)
    return shipped


def _plot(findings_: Findings, kind: str, to: Path | None, metric: str) -> None:
    if kind not in PLOTS:
        raise unknown_name("kind of plot", kind, PLOTS)
    path = to or Path(f"{findings_.study.name}-{kind}.svg")
    figure = plots.draw(kind, plots.plotted_table(findings_.table, metric))
    write_file(path, plots.written(figure, path.suffix[1:]))
    say(f"wrote {path}")
