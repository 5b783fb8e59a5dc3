"""A table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from topk_platform.reports.answer import answer
from topk_platform.reports.sections import to_rich as to_section
from topk_platform.reports.tables import cell_words
from topk_platform.reports.tables import notes as table_notes
from topk_platform.reports.tables.blocks import Block, blocks
from topk_platform.reports.tables.markdown import volumes
from topk_platform.results.cells import Cell
from topk_platform.results.from_store import main_metric
from topk_platform.results.table import Table

__all__ = ["to_rich"]


def to_rich(table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> Group:
    """Return the table for a terminal: a block for each metric, the answer in words, and notes.

    Args:
        table: The table.
        metrics: The metrics to show; by default the study's.
        transpose: Whether losses are columns; by default they are rows.

    Raises:
        UserError: if a metric is not recorded.
    """
    striking = table_notes.striking(table)
    below = [Text(line, style="yellow" if line in striking else "dim") for line in table_notes.notes(table)]
    fronts = [to_section([], [volumes(table)])] if table.fronts else []
    parts: list[tuple[RichTable | Text, ...]] = [
        (_block(block), *(Text(line, style="dim") for line in block.below))
        for block in blocks(table, metrics, transpose=transpose)
    ]
    text = Text(answer(table, metrics[0] if metrics else main_metric(table.study)), style="bold")
    return Group(*(part for pair in parts for part in pair if part), *fronts, text, *below)


def _block(block: Block) -> RichTable:
    common = block.common
    title = block.title + (f" ({common})" if common else "")
    shown = RichTable(title=title, title_justify="left", show_lines=True)
    shown.add_column(block.corner, overflow="fold")
    for column in block.columns:
        shown.add_column(column.replace("-", " ").replace("_", " "), justify="right", overflow="fold")
    for row, cells in zip(block.rows, block.cells, strict=True):
        shown.add_row(row.replace("_", " ").replace("-", " "), *(_rich_cell(cell, common) for cell in cells))
    return shown


def _rich_cell(cell: Cell | None, common: str) -> Text:
    if cell is None:
        return Text("–", style="dim")
    text = Text()
    missing = cell_words.missing(cell)
    if cell.value is not None or missing:
        count = "" if missing else cell_words.count(cell).replace(f"({common})", "")
        value = " ".join(filter(None, (cell_words.mean(cell), count, "*" if cell.best else "")))
        text.append(_unbroken(value), style="bold" if cell.best else "")
        # A terminal may break this text between its words, because it is long.
        text.append(f" {missing}" if missing else "", style="yellow")
    if cell.difference is not None:
        text.append(f"\n{_unbroken(cell_words.difference(cell))}")
    if cell.published is not None:
        # In one line, a published number with its details would be the widest text of the table.
        lines = cell_words.published(cell.published).replace(" (", "\n(")
        text.append(("\n" if text else "") + _unbroken(lines), style="dim")
    return text


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")
