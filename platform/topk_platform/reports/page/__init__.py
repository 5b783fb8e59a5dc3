"""The report of a study, as one HTML file that needs no other files, or as Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from topk_platform.reports.page.content import content_of
from topk_platform.reports.page.drawn import Drawn, drawings
from topk_platform.reports.page.markdown import lowered, to_markdown
from topk_platform.reports.plots import plotted
from topk_platform.reports.tables.classes import EXPLAINED, HEADER
from topk_platform.reports.tables.html import block_to_html
from topk_platform.results.from_store import Held, read
from topk_platform.specs import Study
from topk_platform.specs.fields import check_call

__all__ = ["Page", "markdown_report", "report", "report_files"]


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


def report(
    study: Study,
    *,
    store: str | Path = "runs",
    trials: int | None = None,
    seeds: int | None = None,
    data: str | Path | None = None,
) -> Page:
    """Return an HTML page about a study's results, finished or not.

    It has the question, the answer in words, the tables with published numbers, plots, claims, how the study searched
    and tested, results by class, and the trials behind every number. A click on a heading sorts a table. Long tables
    have a field that filters their rows. The page opens from a disk, needs no network, and uses the reader's light or
    dark mode.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm to select among, instead of those that the last run was asked for.
        seeds: Confirmation seeds per arm, instead of those that the last run was asked for.
        data: The folder of datasets, for test images; by default that of the last run.

    Raises:
        UserError: if the store holds other files than results, or no results of the study.
    """
    check_call(report, locals())
    held = read(study, store, trials, seeds, curves=True, needed=True)
    return Page(_page(held, _drawn(held, data)))


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
    return {"report.html": _page(held, drawn).encode(), **files}


def markdown_report(
    study: Study, *, store: str | Path = "runs", trials: int | None = None, seeds: int | None = None
) -> str:
    """Return the report in Markdown, without plots, for a pull request or a lab notebook.

    Args:
        study: As in :func:`report`.
        store: As in :func:`report`.
        trials: As in :func:`report`.
        seeds: As in :func:`report`.

    Raises:
        UserError: as :func:`report`.
    """
    held = read(study, store, trials, seeds, curves=True, needed=True)
    return to_markdown(content_of(held))


def _drawn(held: Held, data: str | Path | None = None) -> list[Drawn]:
    """Return a study's plots, with test images from a folder of datasets, by default that of the last run."""
    if (folder := held.data_folder(data)) is None:
        return drawings(plotted(held))
    from topk_platform.data import data_at  # noqa: PLC0415 - torch, which only plots with test images need

    with data_at(folder):
        return drawings(plotted(held))


def _page(held: Held, drawn: Sequence[Drawn]) -> str:
    text = content_of(held)
    environment = Environment(loader=PackageLoader(__name__), autoescape=True)
    environment.filters["code"] = _with_code
    return environment.get_template("page.html").render(
        text=text,
        study=held.study,
        table=text.table,
        tables=[(part.title, block_to_html(part.block), part.notes) for part in text.tables],
        drawn=drawn,
        claims=_html(text.claims),
        tuning=_html(text.tuning),
        methods=_html(text.methods),
        header=HEADER,
        explained=EXPLAINED,
    )


def _with_code(text: str) -> Markup:
    """Return a text as HTML; words between backticks become code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - the text is escaped


def _html(markdown: str) -> str:
    """Return Markdown as HTML without its first heading; the other headings are one level lower."""
    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(lowered(markdown)))
