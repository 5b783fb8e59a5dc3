"""A table as Markdown, CSV, Parquet and on the terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from topk_platform.reports.statistics import Estimate
from topk_platform.reports.table import Cell, Choice, Table
from topk_platform.specs import Published

__all__ = ["to_arrow", "to_csv", "to_markdown", "to_parquet", "to_rich"]

_UP, _DOWN = "▲", "▼"


def metric_title(metric: str) -> str:
    """Return a metric's heading.

    Example:
        >>> metric_title("macro_top3")
        'macro-average top-3 accuracy, %'
    """
    kind, _, k = metric.rpartition("top")
    return f"{'macro-average ' if kind else ''}top-{k} accuracy, %"


def _number(found: Estimate, signed: bool = False) -> str:
    mean = f"{100 * found.mean:{'+' if signed else ''}.1f}"
    return mean if math.isnan(found.half_width) else f"{mean} ± {100 * found.half_width:.1f}"


def _value(value: Estimate) -> str:
    return f"{_number(value)} (n = {value.n})"


def _published(number: Published) -> str:
    """Return a paper's number, its standard deviation named, so that nobody takes it for an interval."""
    told = [
        number.split if number.split != "test" else "",
        "" if number.spread is None else f"sd {number.spread:.1f}",
        "" if number.runs is None else f"n = {number.runs}",
    ]
    details = ", ".join(filter(None, told))
    return f"published {number.value:.1f}" + (f" ({details})" if details else "")


def _difference(cell: Cell) -> str:
    if cell.difference is None:
        return ""
    mark = "" if not cell.difference.excludes_zero else _UP if cell.difference.mean > 0 else _DOWN
    return f"{_number(cell.difference, signed=True)} {mark}".rstrip()


def _legend(table: Table) -> str:
    uncounted = (
        f" {table.outdated} recorded trials of another version of the code or the data are not counted."
        if table.outdated
        else ""
    )
    return (
        "Test accuracy: mean ± 95 % t-interval over fresh seeds; the best mean of a column is marked. "
        f"Below it, the difference to {table.study.baseline}, paired by seed; "
        f"{_UP}{_DOWN}: its interval excludes 0 (not corrected for the number of comparisons).{uncounted}"
    )


def _sources(table: Table) -> str:
    """Return the line that says where the published numbers stand, or nothing if there are none."""
    numbers = table.study.published
    if not numbers:
        return ""
    line = f"Published: {'; '.join(dict.fromkeys(number.source for number in numbers))}."
    if any(number.spread is not None for number in numbers):
        line += " sd is the standard deviation over its n runs, not an interval."
    if any(number.split == "validation" for number in numbers):
        line += " Where it says validation, the paper scored that split, and not the test split as here."
    return line


def _settings(choice: Choice) -> str:
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in choice.values.items()
    )


def _markdown_table(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def to_markdown(table: Table) -> str:
    """Return the table as Markdown: per metric a row per loss, a column per regime (or model), and what was chosen."""
    parts = [f"# {table.study.name}", *filter(None, (_legend(table), _sources(table)))]
    for metric in table.study.show:
        body = [[row, *(_markdown_cell(table, row, c, metric) for c in table.columns)] for row in table.rows]
        parts += [f"## {metric_title(metric)}", _markdown_table(["loss", *table.columns], body)]
    body = [
        [
            row,
            column,
            _settings(found),
            f"{100 * found.validation:.1f}",
            f"{found.trials}",
            f"{found.stopped}",
        ]
        for (row, column), found in table.choices.items()
    ]
    header = ["loss", table.across, "chosen on validation", "validation, %", "trials", "of these stopped"]
    if body or any(arm.searches for arm in table.study.arms):
        parts += ["## Configurations", _markdown_table(header, body)]
    if table.failures:
        parts += [
            "## Failed trials",
            "\n".join(f"- `{key}` {arm}: {why}" for key, arm, why in table.failures),
        ]
    return "\n\n".join(parts) + "\n"


def _markdown_cell(table: Table, row: str, column: str, metric: str) -> str:
    cell = table.cells.get((row, column, metric))
    if cell is None:
        return ""
    lines = []
    if cell.value is not None:
        value = _value(cell.value)
        lines += [f"**{value}**" if cell.best else value, _difference(cell)]
    lines += [_published(cell.published)] if cell.published else []
    return "<br>".join(filter(None, lines))


_COLUMNS = (
    ("loss", pa.string()),
    ("regime", pa.string()),
    ("metric", pa.string()),
    ("mean", pa.float64()),
    ("half_width", pa.float64()),
    ("n", pa.int64()),
    ("best", pa.bool_()),
    ("difference", pa.float64()),
    ("difference_half_width", pa.float64()),
    ("difference_n", pa.int64()),
    ("published", pa.float64()),
    ("published_sd", pa.float64()),
    ("published_n", pa.int64()),
    ("published_split", pa.string()),
    ("published_source", pa.string()),
)


def to_arrow(table: Table) -> pa.Table:
    """Return every metric of every cell, a row each, as fractions of 1.

    The column ``regime`` is called ``model`` where the table's columns are models.
    """
    rows = [
        (*place, *_estimated(cell.value), cell.best, *_estimated(cell.difference), *_published_values(cell))
        for place, cell in table.cells.items()
    ]
    columns = [pa.array([row[i] for row in rows], kind) for i, (_, kind) in enumerate(_COLUMNS)]
    names = [table.across if name == "regime" else name for name, _ in _COLUMNS]
    return pa.Table.from_arrays(columns, names=names)


def _estimated(found: Estimate | None) -> tuple[float | None, float | None, int | None]:
    return (None, None, None) if found is None else (found.mean, found.half_width, found.n)


def _published_values(cell: Cell) -> tuple[float | str | None, ...]:
    found = cell.published
    if found is None:
        return (None,) * 5
    spread = None if found.spread is None else found.spread / 100
    return found.value / 100, spread, found.runs, found.split, found.source


def to_parquet(table: Table) -> bytes:
    """Return what :func:`to_arrow` returns, as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(to_arrow(table), sink)
    return bytes(sink.getvalue())


def to_csv(table: Table) -> str:
    """Return what :func:`to_arrow` returns, as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    arrow = to_arrow(table)
    writer.writerow(arrow.column_names)
    writer.writerows(zip(*(column.to_pylist() for column in arrow.columns), strict=True))
    return text.getvalue()


def to_rich(table: Table) -> Group:
    """Return the table for a terminal: a block per metric, differences under the values."""
    below = [Text(line, style="dim") for line in (_legend(table), _sources(table)) if line]
    return Group(*(_block(table, metric) for metric in table.study.show), *below)


def _block(table: Table, metric: str) -> RichTable:
    values = [cell.value for place, cell in table.cells.items() if place[2] == metric]
    numbers = {value.n for value in values if value is not None}
    common = numbers.pop() if len(numbers) == 1 else None
    title = metric_title(metric) + (f" (n = {common})" if common else "")
    block = RichTable(title=title, title_justify="left", show_lines=True)
    block.add_column("loss")
    for column in table.columns:
        block.add_column(column.replace("-", " "), justify="right", overflow="fold")
    for row in table.rows:
        cells = (table.cells.get((row, column, metric)) for column in table.columns)
        block.add_row(row.replace("_", " "), *(_rich_cell(cell, common) for cell in cells))
    return block


def _rich_cell(cell: Cell | None, common: int | None) -> Text:
    if cell is None:
        return Text("–", style="dim")
    text = Text()
    if cell.value is not None:
        value = _number(cell.value) if common else _value(cell.value)
        text.append(_unbroken(value + (" *" if cell.best else "")), style="bold" if cell.best else "")
    if cell.difference is not None:
        text.append(f"\n{_unbroken(_difference(cell))}")
    if cell.published is not None:
        lines = _published(cell.published).replace(
            " (", "\n("
        )  # side by side they would be the widest of all
        text.append(("\n" if text else "") + _unbroken(lines), style="dim")
    return text


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")
