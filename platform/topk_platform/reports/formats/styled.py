"""A table as pandas has it, for LaTeX and HTML: a frame of texts, whose ``style`` writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topk_platform.reports.cells import Cell
from topk_platform.reports.formats import words
from topk_platform.reports.formats.blocks import Block

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["caption", "cell_lines", "to_pandas"]


def cell_lines(cell: Cell | None, common: int | None) -> list[str]:
    """Return the lines of a cell: the mean, its seeds, the difference to the baseline, the published number.

    Args:
        cell: The cell.
        common: The number of seeds that a caption says; another one stands in the cell.
    """
    if cell is None:
        return []
    missing = words.missing(cell)
    lines = []
    if cell.value is not None or missing:
        as_all = cell.value is not None and cell.value.n == common and not cell.stopped
        lines += [words.mean(cell), missing or ("" if as_all else words.count(cell))]
    lines += [words.difference(cell), words.published(cell.published) if cell.published else ""]
    return [line for line in lines if line]


def caption(block: Block) -> str:
    """Return what a reader has to know: the metric, n, K, the budget, the test set, what ± is, what marks mean."""
    n = f", n = {block.common} seeds" if block.common else ""
    title = f"{block.table.study.name}: test {block.title}{n}."
    parts = [title, words.setting(block.table), *words.notes(block.table)]
    return " ".join([*parts, words.ranked(block.table, block.metric)]).strip()


def to_pandas(
    block: Block, text: Callable[[Cell | None, int | None], str], name: Callable[[str], str]
) -> DataFrame:
    """Return a block as a frame of texts.

    Args:
        block: The block.
        text: Writes a cell.
        name: Writes the name of a row or a column.
    """
    import pandas as pd  # noqa: PLC0415 - half a second

    rows = [[text(cell, block.common) for cell in line] for line in block.cells]
    return pd.DataFrame(rows, index=list(map(name, block.rows)), columns=list(map(name, block.columns)))
