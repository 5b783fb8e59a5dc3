"""The report of a study, as one HTML file that needs no other files, or as Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from topk_platform.reports.answer import answer
from topk_platform.reports.claims_and_classes import EXPLAINED, claim_tables, claims_line, class_tables
from topk_platform.reports.methods import methods
from topk_platform.reports.notes import legend, notes, setting, striking
from topk_platform.reports.plots import plotted
from topk_platform.reports.plots.page_plots import Drawn, drawings
from topk_platform.reports.result_tables import configurations, result_tables
from topk_platform.reports.text_tables import TextTable, html_table, markdown_parts
from topk_platform.reports.words import command
from topk_platform.results.by_class import class_results
from topk_platform.results.decisions import decisions_of, of_store
from topk_platform.results.from_store import Held, read
from topk_platform.results.table import Table, main_metric
from topk_platform.specs import Study, scale_of
from topk_platform.specs.checks import plural
from topk_platform.specs.fields import check_call

__all__ = ["Page", "markdown_report", "report", "report_files"]

_CLASS_ROWS = 300  # the most rows of a regime's results by class
_LISTED = 1000  # arms with trials and results by class in a page; more would be too large for a browser
_FAILED = 200  # the most failed trials that are named
_KEYS = (
    "Each mean is over these runs; accuracies and other shares are in percent. `topk replay KEY --no-train` shows "
    "everything that is recorded about a run; without the option it trains the run again and compares."
)


class Page(str):
    """A page in HTML: a string that a notebook shows in a frame."""

    __slots__ = ()

    def write(self, path: str | Path) -> Path:
        """Write the page to a file and return its path.

        Args:
            path: The file, usually one that ends in ``.html``.

        Example:
            >>> import tempfile
            >>> Page("<p>none</p>").write(tempfile.mkdtemp() + "/page.html").name
            'page.html'
        """
        file = Path(path).expanduser()
        file.write_text(self, encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        # A frame keeps the styles of the page and of the notebook apart.
        return f'<iframe srcdoc="{html.escape(self)}" style="width: 100%; height: 80vh; border: 0"></iframe>'

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - as IPython calls it
        printer.text(f"<page of {len(self)} characters; .write(path) makes it a file>")


def report(study: Study, *, store: str | Path = "runs", data: str | Path | None = None) -> Page:
    """Return an HTML page about a study's results, finished or not.

    It has the answer, test images with their guesses, the tables with published numbers, plots, claims, how the study
    searched and tested, results by class, and the trials behind every number. A click on a heading sorts a table. Long
    tables have a field that filters their rows. The page opens from a disk, needs no network, and uses the reader's
    light or dark mode.

    Args:
        study: The study.
        store: Folder or URI of the results.
        data: The folder of datasets, for test images; by default that of the last run.

    Raises:
        UserError: if the store holds other files than results, or no results of the study.
    """
    check_call(report, locals())
    held = read(study, store, curves=True, needed=True)
    return Page(_html(held, _drawn(held, data)))


def _drawn(held: Held, data: str | Path | None = None) -> list[Drawn]:
    """Return a study's plots, with test images from a folder of datasets, by default that of the last run."""
    if (folder := held.data_folder(data)) is None:
        return drawings(plotted(held))
    from topk_platform.data import data_at  # noqa: PLC0415 - torch, which only plots with test images need

    with data_at(folder):
        return drawings(plotted(held))


def report_files(study: Study, *, store: str | Path = "runs") -> dict[str, bytes]:
    """Return the page of :func:`report` and its plots, as separate files by name, for a tracking server.

    Args:
        study: The study.
        store: Folder or URI of the results.

    Raises:
        UserError: as :func:`report`.
    """
    held = read(study, store, curves=True, needed=True)
    drawn = _drawn(held)
    files = {f"plots/{plot.kind}.svg": plot.file for plot in drawn if plot.file}
    return {"report.html": _html(held, drawn).encode(), **files}


def markdown_report(study: Study, *, store: str | Path = "runs") -> str:
    """Return the report in Markdown, without plots and trials, for a pull request or a lab notebook.

    Args:
        study: As in :func:`report`.
        store: As in :func:`report`.

    Raises:
        UserError: as :func:`report`.
    """
    held = read(study, store, curves=True, needed=True)
    table = held.table
    parts = [f"# {study.name}", study.description, f"**Answer.** {answer(table, main_metric(study))}"]
    parts += [*(f"> {line}" for line in striking(table)), setting(table)]
    for chapter in _chapters(held):
        parts += [f"## {chapter.title}", *chapter.above, *markdown_parts(chapter.tables, 3), *chapter.below]
    page = command("report", study, given=table.given)
    parts.append(f"Plots, and the trials behind every number: `{page}`, a page in HTML.")
    return "\n\n".join(filter(None, parts)) + "\n"


@dataclass(frozen=True)
class _Chapter:
    """A part of the report.

    Args:
        title: Its title.
        tables: Its tables.
        above: The lines above them.
        below: The lines below them.
        folded: Whether its tables are opened by a click.
    """

    title: str
    tables: Sequence[TextTable]
    above: Sequence[str] = ()
    below: Sequence[str] = ()
    folded: bool = False


def _chapters(held: Held) -> Iterator[_Chapter]:
    """Yield the parts of the report with tables; those without one are left out."""
    study, table = held.study, held.table
    tables = [made for made in result_tables(table) if made.rows]
    yield _Chapter(
        "Tables", tables, [] if tables else ["There are no numbers yet."], [*legend(table), *notes(table)]
    )
    listed = _listed(table)
    if classes := class_tables(table, class_results(listed, held.ledger.store, held.ranks), _CLASS_ROWS):
        yield _Chapter("Results by class", classes, [EXPLAINED, *_unlisted(listed, table)], folded=True)
    if study.claims:
        decisions = decisions_of(study, of_store(held))
        yield _Chapter("Claims", claim_tables(decisions), [claims_line(decisions)])
    if table.choices:
        yield _Chapter("Tuning", [configurations(table)], folded=True)
    yield _Chapter("Methods", methods(held))
    if table.failures:
        more = len(table.failures) - _FAILED
        failed = TextTable("Reasons", ("key", "arm", "reason"), table.failures[:_FAILED])
        yield _Chapter("Failed trials", [failed], below=[f"And {more} more."] if more > 0 else [])


def _listed(table: Table) -> Table:
    """Return a table with the confirmations of as many arms as a page lists."""
    return replace(table, confirmations=dict(islice(table.confirmations.items(), _LISTED)))


def _unlisted(listed: Table, table: Table) -> Iterator[str]:
    """Yield the line about arms that have neither trials nor results by class in the page."""
    shown, count, study = len(listed.confirmations), len(table.confirmations), table.study
    if shown < count:
        yield (
            f"This page has the results by class and the trials of the first {shown:,} of {count:,} arms; "
            f"`{command('table', study, '--by', 'class', '--format', 'csv', given=table.given)}` and "
            f"`{command('export', study, '--format', 'csv', '--to', f'{study.name}.csv', given=table.given)}` have all."
        )


def _runs(table: Table) -> _Chapter:
    """Return the trials behind every number."""
    listed, metrics = _listed(table), table.study.show
    tables = [
        TextTable(
            ", ".join(key),
            ("seed", "ended", "key", *metrics),
            [
                (str(seed), str(row["status"]), str(row["key"]), *_scores(row, metrics))
                for seed, row in sorted(rows.items())
            ],
            numbers=("seed", *metrics),
        )
        for key, rows in listed.confirmations.items()
        if rows
    ]
    return _Chapter("The trials behind every number", tables, [_KEYS, *_unlisted(listed, table)], folded=True)


def _scores(row: Any, metrics: Sequence[str]) -> Iterator[str]:
    for metric in metrics:
        value = row[f"test.{metric}"]
        yield f"{scale_of(metric) * value:.2f}" if isinstance(value, float) else "–"


def _html(held: Held, drawn: Sequence[Drawn]) -> str:
    study, table = held.study, held.table
    environment = Environment(loader=PackageLoader(__name__.rpartition(".")[0]), autoescape=True)
    environment.filters["code"] = _with_code
    environment.filters["table"] = lambda made: Markup(html_table(made))  # noqa: S704 - it escapes its texts
    baseline = f"; baseline {study.baseline}" if study.baseline else ""
    first = [plot for plot in drawn if plot.kind == "guesses" and plot.svg]
    return environment.get_template("page.html").render(
        study=study,
        arms=f"{plural(len(study.arms), 'arm')}{baseline}. {setting(table)}",
        answer=answer(table, main_metric(study)),
        striking=striking(table),
        first=first,
        drawn=[plot for plot in drawn if plot not in first],
        chapters=[*_chapters(held), _runs(table)],
    )


def _with_code(text: str) -> Markup:
    """Return a text as HTML; words between backticks become code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - the text is escaped
