"""A table as a pandas frame of texts, whose ``style`` writes LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topk_platform.reports.tables import cell_words, legend
from topk_platform.reports.tables import notes as table_notes
from topk_platform.reports.tables.blocks import Block
from topk_platform.results.cells import Cell

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["caption", "cell_lines", "to_pandas"]


def cell_lines(cell: Cell | None, common: str) -> list[str]:
    """Return the lines of a cell: the mean, its seeds, the difference to the baseline, the published number.

    Args:
        cell: The cell.
        common: The words about seeds that the caption has; the cell leaves them out.
    """
    if cell is None:
        return []
    missing = cell_words.missing(cell)
    lines = []
    if cell.value is not None or missing:
        lines += [cell_words.mean(cell), missing or cell_words.count(cell).replace(f"({common})", "")]
    lines += [cell_words.difference(cell), cell_words.published(cell.published) if cell.published else ""]
    return [line for line in lines if line]


def caption(block: Block) -> str:
    """Return a block's caption: the metric, n, K, the budget, the test set, and the meaning of ± and of the marks."""
    n, comma, more = block.common.partition(", ")
    common = f", {n} seeds{comma}{more}" if n else ""
    title = f"{block.table.study.name}: test {block.title}{common}."
    return " ".join([title, legend.setting(block.table), *table_notes.notes(block.table), *block.below])


def to_pandas(block: Block, text: Callable[[Cell | None, str], str], name: Callable[[str], str]) -> DataFrame:
    """Return a block as a frame of texts.

    Args:
        block: The block.
        text: A function that writes a cell, given the cell and :attr:`Block.common`.
        name: A function that writes the name of a row or a column.
    """
    import pandas as pd  # noqa: PLC0415 - takes half a second to import

    rows = [[text(cell, block.common) for cell in line] for line in block.cells]
    return pd.DataFrame(rows, index=list(map(name, block.rows)), columns=list(map(name, block.columns)))
