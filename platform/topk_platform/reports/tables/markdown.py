"""A table as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from topk_platform.reports import words
from topk_platform.reports.plain_text import markdown_table
from topk_platform.reports.tables import cell_words
from topk_platform.reports.tables import notes as table_notes
from topk_platform.reports.tables.blocks import Block, blocks
from topk_platform.results.cells import Cell
from topk_platform.results.table import Table

__all__ = ["block_to_markdown", "configurations", "to_markdown"]


def to_markdown(table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> str:
    """Return the table as Markdown: a part for each metric, the chosen configurations, and failed trials.

    Args:
        table: The table.
        metrics: The metrics to show; by default the study's.
        transpose: Whether losses are columns; by default they are rows.

    Raises:
        UserError: if a metric is not recorded.
    """
    parts = [f"# {table.study.name}", *table_notes.notes(table)]
    for block in blocks(table, metrics, transpose=transpose):
        parts += [f"## {block.title}", block_to_markdown(block)]
        parts += block.below
    if table.choices or any(arm.is_searched for arm in table.study.arms):
        parts += ["## Configurations", configurations(table)]
    if table.failures:
        parts += [
            "## Failed trials",
            "\n".join(f"- `{key}` {arm}: {why}" for key, arm, why in table.failures),
        ]
    return "\n\n".join(parts) + "\n"


def block_to_markdown(block: Block) -> str:
    """Return one metric's table in Markdown, without its title.

    Args:
        block: The block.
    """
    body = [[name, *map(_markdown_cell, line)] for name, line in zip(block.rows, block.cells, strict=True)]
    return markdown_table([block.corner, *block.columns], body)


def configurations(table: Table) -> str:
    """Return the configurations that the searches chose, with a row for each search."""
    repeated = any(arm.repeats.count > 1 for arm in table.study.arms)
    body = [
        [
            *((row, column, f"{result.search + 1}") if repeated else (row, column)),
            words.settings(result.values),
            f"{100 * result.validation:.1f}",
            f"{result.trials}",
            f"{result.stopped}",
        ]
        for (row, column), choices in table.choices.items()
        for result in choices
    ]
    key = ["loss", table.across, *(["search"] if repeated else [])]
    return markdown_table(
        [*key, "chosen on validation", "validation, %", "trials", "of these not completed"], body
    )


def _markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    lines = []
    if runs := cell_words.missing(cell) or cell_words.count(cell):
        value = f"{cell_words.mean(cell)} {runs}"
        lines += [f"**{value}**" if cell.best else value, cell_words.difference(cell)]
    lines += [cell_words.published(cell.published)] if cell.published else []
    return "<br>".join(filter(None, lines))
