"""A table in HTML with its style, for pages and notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence

from topk_platform.reports.tables.blocks import Block, blocks
from topk_platform.reports.tables.styled import caption, cell_lines, to_pandas
from topk_platform.results.cells import Cell
from topk_platform.results.table import Table

__all__ = ["block_to_html", "to_html"]

_STYLE = """<style>
.topk { border-collapse: collapse; font: 0.85rem/1.35 system-ui, sans-serif; margin: 0.5rem 0 1.5rem; }
.topk caption { caption-side: bottom; text-align: left; padding-top: 0.5rem; opacity: 0.8; max-width: 60rem; }
.topk th, .topk td { padding: 0.3rem 0.6rem; text-align: right; vertical-align: top; border: 0; }
.topk thead th { border-bottom: 1px solid currentColor; vertical-align: bottom; }
.topk thead tr:first-child th { border-top: 2px solid currentColor; }
.topk tbody tr:last-child > * { border-bottom: 2px solid currentColor; }
.topk tbody th { text-align: left; font-weight: normal; }
.topk small { display: block; opacity: 0.75; white-space: nowrap; font-weight: normal; }
.topk small.seeds { white-space: normal; }
</style>
"""
_LONG = ' class="seeds"'  # a browser may break the line about seeds if there are many columns


def to_html(table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> str:
    """Return a table in HTML, one ``<table>`` for each metric; the HTML loads no other files.

    Args:
        table: The table.
        metrics: The metrics to show; by default the study's.
        transpose: Whether losses are columns.

    Raises:
        UserError: if a metric is not recorded.
    """
    result = blocks(table, metrics, transpose=transpose)
    return _STYLE + "\n".join(block_to_html(block, caption(block)) for block in result)


def block_to_html(block: Block, lines: str = "") -> str:
    """Return one metric's table in HTML, without a style.

    Args:
        block: The block.
        lines: The caption; empty for none.
    """
    styled = to_pandas(block, _cell, _name).style
    styled = styled.set_caption(html.escape(lines)) if lines else styled
    text: str = styled.set_uuid(block.metric).to_html(
        doctype_html=False, table_attributes='class="topk"', sparse_index=False
    )
    return text


def _cell(cell: Cell | None, common: str) -> str:
    if cell is None:
        return "–"
    first, *others = [html.escape(line) for line in cell_lines(cell, common)] or [""]
    first = f"<b>{first}</b>" if cell.best else first
    return first + "".join(f"<small{_LONG if line[0] == '(' else ''}>{line}</small>" for line in others)


def _name(name: str) -> str:
    # A browser may break a name between its words.
    return html.escape(name).replace("_", "_<wbr>").replace("/", "/<wbr>")
