"""Commands that show results: tables, plots, and a page to send to a colleague."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.consoles import check_suffix, make_console, print_rows, say, show, write_file
from topk_platform.cli.findings_by_name import requested_findings
from topk_platform.cli.options import check_format
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.storage.store import Store
from topk_platform.reports import page, plots
from topk_platform.reports.catalogue import PLOT_FILES, PLOTS, TABLE_FORMATS, as_format, drawn_from, or_of
from topk_platform.reports.claims_and_classes import (
    FORMATS,
    claims_as,
    claims_to_rows,
    classes_as,
    classes_to_rows,
)
from topk_platform.reports.notes import without_ranks
from topk_platform.reports.study_table import table as read_table
from topk_platform.reports.table_data import to_rows
from topk_platform.results.by_class import class_results
from topk_platform.results.decisions import decide
from topk_platform.results.table import Table

__all__ = ["plot", "report", "table"]

_SUFFIXES = [f".{kind}" for kind in PLOT_FILES]


def table(
    study: options.StudyOrFindings,
    store: options.Store = "runs",
    output: Annotated[str, typer.Option("--format", help=f"{or_of(TABLE_FORMATS)}.")] = "rich",
    searches: options.Searches = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    only: options.Only = None,
    metric: options.Metrics = None,
    by: Annotated[
        str, typer.Option("--by", help="class: each class's accuracies, and what it is confused with.")
    ] = "",
    claims: Annotated[
        bool,
        typer.Option(
            "--claims",
            help="Decide the study's claims, such as its paper's findings: confirmed, refuted, undecided, or waiting "
            "for data.",
        ),
    ] = False,
    smoke: options.Smoke = False,
    json: options.Json = False,
) -> None:
    """Print a study's table, or its decided claims, from the results in the store or from findings; runs nothing.

    Example: topk table letters_quick --format latex > table.tex
    """
    check_format(output, *(FORMATS if claims else TABLE_FORMATS), json=json)
    if claims and (metric or by or only or seeds):
        raise UserError("--metric, --by, --only and --seeds are for a table, not for --claims")
    if by:
        _check_by_class(by, output, bool(metric))
    findings = requested_findings(
        study, store, smoke=smoke, searches=searches, trials=trials, seeds=seeds, only=only, by=by
    )
    requested = findings.study if findings else requested_study(study, smoke, store, searches, trials, seeds)
    if claims:
        if not requested.claims:
            made = "a smoke run has none, because its numbers say nothing about them"
            why = made if smoke else "define them, Study(claims=...)"
            raise UserError(f"study {requested.name} has no claims: {why}")
        decisions = findings.decisions() if findings else decide(requested, store=store)
        if json:
            print_rows(claims_to_rows(decisions))
        else:
            show(output, claims_as(output, requested.name, decisions))
        return
    results = findings.table if findings else read_table(requested, store=store, only=only)
    # The other formats show the line below the table.
    if (line := without_ranks(results)) and (json or output == "csv"):
        typer.echo(f"topk: {line}", err=True)
    if by:
        _print_classes(results, store, output, json)
        return
    if json:
        print_rows(to_rows(results, metric or ()))
        return
    show(output, as_format(output, results, metric or ()))
    if findings and output == "rich":
        make_console().print(findings.origin())


def _check_by_class(by: str, output: str, more: bool) -> None:
    """Raise ``UserError`` for options that do not go together with results by class."""
    if by != "class":
        raise UserError(f"--by must be class, got {by!r}")
    if output not in FORMATS:
        raise UserError(f"--by class is written as {or_of(FORMATS)}, got --format {output}")
    if more:
        raise UserError("--metric is not for --by class: it has top-1 and top-K of every class")


def _print_classes(results: Table, store: str, output: str, json: bool) -> None:
    opened = Store.open(store).at(results.study.name)
    classes = class_results(results, opened, partial(read_all_ranks, opened))
    if json:
        print_rows(classes_to_rows(results, classes))
    else:
        show(output, classes_as(output, results, classes))


def plot(
    study: options.StudyOrFindings,
    kind: Annotated[str, typer.Argument(help=f"{drawn_from()}.")],
    store: options.Store = "runs",
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            help=f"The file, {or_of(_SUFFIXES)}; by default STUDY-KIND.svg here.",
            callback=options.nonblank,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            help=f"For {drawn_from('table')}: a metric, such as top5; by default the selection metric.",
        ),
    ] = "",
    data: options.Data = None,
    searches: options.Searches = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    only: options.Only = None,
    smoke: options.Smoke = False,
) -> None:
    """Plot a study's results from the store, or those of findings, into a file.

    Example: topk plot letters_map differences --to map.pdf
    """
    plots.check_options(kind, metric=metric, data=data)
    findings = requested_findings(
        study,
        store,
        shipped=PLOTS[kind].source == "table",
        smoke=smoke,
        searches=searches,
        trials=trials,
        seeds=seeds,
        only=only,
        data=data,
    )
    requested = findings.study if findings else requested_study(study, smoke, store, searches, trials, seeds)
    path = to or Path(f"{requested.name}-{kind}.svg")
    check_suffix(path, _SUFFIXES)

    if findings:
        figure = plots.draw(kind, plots.plotted(findings.table, metric=metric))
    else:
        figure = plots.plot(requested, kind, store=store, metric=metric, only=only, data=data)
    _write(path, plots.written(figure, path.suffix[1:]))


def _write(path: Path, data: bytes) -> None:
    write_file(path, data)
    say(f"wrote {path}")


def report(
    study: options.Study,
    store: options.Store = "runs",
    output: Annotated[str, typer.Option("--format", help="html, or md without plots.")] = "html",
    to: Annotated[
        Path | None,
        typer.Option("--to", help="The file; by default STUDY.html or .md here.", callback=options.nonblank),
    ] = None,
    data: options.Data = None,
    searches: options.Searches = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    smoke: options.Smoke = False,
) -> None:
    """Write all results of a study as one HTML page, which needs no other file and no network, or as Markdown.

    Example: topk report letters_quick --to letters.html
    """
    check_format(output, "html", "md")
    requested = requested_study(study, smoke, store, searches, trials, seeds)
    path = to or Path(f"{requested.name}.{output}")
    check_suffix(path, [f".{output}"], f"with --format {output}")

    if output == "html":
        text: str = page.report(requested, store=store, data=data)
    else:
        text = page.markdown_report(requested, store=store)
    _write(path, text.encode())
