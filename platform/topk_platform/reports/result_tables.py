"""A study's results as tables of texts, a table for each metric, and these in each format for people."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group
from rich.text import Text

from topk_platform.errors import UserError
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.reports.answer import answer
from topk_platform.reports.notes import caption, ends, legend, notes, setting, striking
from topk_platform.reports.text_tables import (
    TextTable,
    html_table,
    latex_table,
    markdown_parts,
)
from topk_platform.reports.words import command, metric_title, number, ui_command
from topk_platform.results.cells import Cell
from topk_platform.results.intervals import ONE_SEARCH
from topk_platform.results.table import Table, is_at_end, main_metric, row_and_column
from topk_platform.specs import Dimension, Published, Scalar, unit_of
from topk_platform.specs.checks import rounded

__all__ = [
    "chosen_metrics",
    "configurations",
    "mark",
    "result_tables",
    "to_html",
    "to_latex",
    "to_markdown",
    "to_rich",
]

_MARKS = {"better": "▲△", "worse": "▼▽", "": ("", "")}
_STYLE = """<style>
.topk { border-collapse: collapse; font: 0.85rem/1.35 system-ui, sans-serif; margin: 0.5rem 0 1.5rem; }
.topk caption { text-align: left; font-weight: bold; }
.topk th, .topk td { padding: 0.2rem 0.6rem; text-align: left; border-bottom: 1px solid #8884; }
.topk .n { text-align: right; white-space: nowrap; }
</style>
"""


def chosen_metrics(table: Table, metrics: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the metrics to show, by default the study's, its main metric first.

    Raises:
        UserError: if a metric is not recorded. A file of findings has some of the study's metrics.
    """
    held = {metric for _, _, metric in table.cells}
    known = [metric for metric in table.study.tabled if table.stored or metric in held]
    for metric in metrics:
        if metric not in known:
            raise UserError(f"--metric must be one of {known}, got {metric!r}")
    main = main_metric(table.study)
    return tuple(metrics) or tuple(sorted(table.study.show, key=lambda metric: metric != main))


def result_tables(table: Table, metrics: Sequence[str] = ()) -> list[TextTable]:
    """Return a table of texts for each metric, with a row for each cell.

    The columns are the regime (or the model) if there are several, the loss, the mean with its interval, the difference
    to the baseline with its interval, and the mark. Seeds, searches, what intervals cover and published numbers are
    columns where they differ or exist. The rows of the best means are emphasized.

    Args:
        table: The table.
        metrics: The metrics to show; by default the study's.

    Raises:
        UserError: if a metric is not recorded.
    """
    return [_of_metric(table, metric) for metric in chosen_metrics(table, metrics)]


def _of_metric(table: Table, metric: str) -> TextTable:
    keys = [(row, column) for column in table.columns for row in table.rows]
    cells = {key: cell for key in keys if (cell := table.cells.get((*key, metric))) is not None}
    searches = _searches(table)
    covered = {_covers(c) for (_, _, m), c in table.cells.items() if m in table.study.show} - {""}
    texts: dict[str, list[str]] = {
        table.across: [column for _, column in cells],
        "loss": [row for row, _ in cells],
        f"mean, {unit_of(metric)}": [
            "–" if c.value is None else number(c.value, metric=metric) for c in cells.values()
        ],
        f"to {table.study.baseline}": [
            "" if c.difference is None else number(c.difference, signed=True, metric=metric)
            for c in cells.values()
        ],
        "mark": list(map(mark, cells.values())),
        "seeds": list(map(_seeds, cells.values())),
        "searches": [str(searches.get(key, "")) for key in cells],
        "interval over": [_covers(cell) if len(covered) > 1 else "" for cell in cells.values()],
        "published": [_published(cell.published) for cell in cells.values()],
    }
    same = ("seeds", "searches", *((table.across,) if len(table.columns) == 1 else ()))
    left_out = {name for name in same if len(set(texts[name])) < 2} | {
        n for n, column in texts.items() if not any(column)
    }
    header = [name for name in texts if name not in left_out]
    return TextTable(
        metric_title(metric),
        header,
        list(zip(*(texts[name] for name in header), strict=True)),
        numbers=header[2 if table.across in header else 1 :][: 1 + (table.study.baseline is not None)],
        best=[position for position, cell in enumerate(cells.values()) if cell.best],
        grouped=table.across in header,
    )


def _covers(cell: Cell) -> str:
    """Return what a mean's interval covers, but for the luck of a single search; empty without an interval."""
    return cell.value.covers.removesuffix(ONE_SEARCH) if cell.value is not None and cell.value.n > 1 else ""


def _searches(table: Table) -> dict[tuple[str, str], int]:
    """Return how often each arm is searched, by row and column; 0 for arms with nothing to search."""
    return {
        row_and_column(table.study, table.across, arm): arm.repeats.count if arm.is_searched else 0
        for arm in table.study.arms
    }


def mark(cell: Cell) -> str:
    """Return a cell's marks: ▲ or ▼, hollow in a secondary metric, and ≈ if it is equivalent to the baseline."""
    return _MARKS[cell.mark][not cell.primary] + ("≈" if cell.equivalent else "")


def _seeds(cell: Cell) -> str:
    """Return how many seeds a mean has; if runs were lost or pairs are missing, in words."""
    if cell.confirmed.lost:
        return ends(cell.confirmed)
    if cell.value is None:
        return f"search: {ends(cell.searched)}" if cell.searched.ended and not cell.searched.completed else ""
    pairs = cell.difference.n if cell.difference is not None else cell.value.n
    return f"{cell.value.n}{f', {pairs} pairs' if pairs != cell.value.n else ''}"


def _published(printed: Published | None) -> str:
    """Return a paper's number. Its standard deviation has the label "sd", because it is not an interval."""
    if printed is None:
        return ""
    parts = [
        f"{printed.value:.1f}",
        "" if printed.spread is None else f"sd {printed.spread:.1f}",
        "" if printed.runs is None else f"n = {printed.runs}",
        printed.split if printed.split != "test" else "",
    ]
    return ", ".join(filter(None, parts))


def to_rich(table: Table, metrics: Sequence[str] = ()) -> Group:
    """Return the results for a terminal: the answer, the conditions, a table for each metric, legend and notes.

    Args:
        table: The table.
        metrics: The metrics to show; by default the study's.

    Raises:
        UserError: if a metric is not recorded.
    """
    chosen = chosen_metrics(table, metrics)
    page = command("report", table.study, given=table.given)
    more = [f"Page: {page}", f"MLflow: {ui_command(given=table.given)}"] if table.stored else []
    return Group(
        Text(answer(table, chosen[0]), "bold"),
        *(Text(line, "yellow") for line in striking(table)),
        Text(setting(table)),
        *result_tables(table, chosen),
        *(Text(line, "dim") for line in ("", *legend(table, "*"), *notes(table), *more)),
    )


def to_markdown(table: Table, metrics: Sequence[str] = ()) -> str:
    """Return the results as Markdown: as on the terminal, with the chosen configurations and the failed trials.

    Args:
        table: The table.
        metrics: As in :func:`to_rich`.

    Raises:
        UserError: if a metric is not recorded.
    """
    chosen = chosen_metrics(table, metrics)
    parts = [f"# {table.study.name}", answer(table, chosen[0]), *striking(table), setting(table)]
    parts += [*markdown_parts(result_tables(table, chosen)), *legend(table), *notes(table)]
    parts += markdown_parts([configurations(table)] if table.choices else [])
    failed = [f"- `{key}` {arm}: {why}" for key, arm, why in table.failures]
    parts += ["## Failed trials", "\n".join(failed)] if failed else []
    return "\n\n".join(parts) + "\n"


def configurations(table: Table) -> TextTable:
    """Return the configurations that the searches chose, with a row for each search; ends of ranges are marked."""
    spaces = {row_and_column(table.study, table.across, arm): arm.loss.space for arm in table.study.arms}
    rows = [
        (
            *(column, row, str(choice.search + 1)),
            ", ".join(_chosen(name, value, spaces[row, column]) for name, value in choice.values.items()),
            *(f"{100 * choice.validation:.1f}", str(choice.trials), str(choice.stopped)),
        )
        for (row, column), choices in table.choices.items()
        for choice in choices
    ]
    numbers = ("validation, %", "trials", "not completed")
    header = (table.across, "loss", "search", "chosen on validation", *numbers)
    return TextTable("Configurations", header, rows, numbers=numbers)


def _chosen(name: str, value: Scalar, space: Mapping[str, Dimension]) -> str:
    end = " (end of its range)" if name in space and is_at_end(space[name], value) else ""
    return f"{name} {rounded(value)}{end}"


def to_html(table: Table, metrics: Sequence[str] = ()) -> str:
    """Return the results in HTML, with a ``<table>`` for each metric; the HTML loads no other files.

    Args:
        table: The table.
        metrics: As in :func:`to_rich`.

    Raises:
        UserError: if a metric is not recorded.
    """
    chosen = chosen_metrics(table, metrics)
    above = [answer(table, chosen[0]), *striking(table), setting(table)]
    tables = (html_table(made, made.title) for made in result_tables(table, chosen))
    return _STYLE + "\n".join([*_paragraphs(above), *tables, *_paragraphs([*legend(table), *notes(table)])])


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    return (f"<p>{html.escape(line)}</p>" for line in lines)


def to_latex(table: Table, metrics: Sequence[str] = ()) -> str:
    r"""Return the results in LaTeX, with an environment ``table`` for each metric.

    It needs ``\usepackage{booktabs, amssymb}``. Losses have their titles instead of their identifiers. The best mean of
    a regime is bold. The caption gives K, the numbers of trials and seeds, the number of test images if it is known,
    and the meaning of ± and of the marks.

    Args:
        table: The table.
        metrics: As in :func:`to_rich`.

    Raises:
        UserError: if a metric is not recorded.
    """
    parts = ["% \\usepackage{booktabs, amssymb}\n"]
    for metric, made in zip(chosen_metrics(table, metrics), result_tables(table, metrics), strict=True):
        titled = TextTable(
            made.title,
            [_with_titles(table, name) for name in made.header],
            [[_with_titles(table, text) for text in row] for row in made.rows],
            numbers=[_with_titles(table, name) for name in made.numbers],
            best=made.best,
            grouped=made.grouped,
        )
        label = f"tab:{table.study.name}-{metric}".replace("_", "-")
        text = f"{table.study.name}: test {made.title}. {caption(table)}"
        parts.append(latex_table(titled, _with_titles(table, text), label))
    return "\n".join(parts)


def _with_titles(table: Table, text: str) -> str:
    """Return a text with titles instead of the losses' identifiers, unless the study labels them otherwise."""
    titles = {loss: entry.title for loss, entry in LOSS_CATALOGUE.items()}
    labels = {arm.loss.label for arm in table.study.arms if arm.loss.label == arm.loss.name} & titles.keys()
    # An identifier inside a longer name, such as a regime or another label, stays.
    names = rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(labels)))})(?![\w-])"
    return re.sub(names, lambda result: titles[result[0]], text) if labels else text
