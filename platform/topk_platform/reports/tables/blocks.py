"""The parts of a table that formats write, one per metric, with losses as rows or as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topk_platform.errors import UserError
from topk_platform.reports import words
from topk_platform.reports.tables import cell_words, legend
from topk_platform.results.cells import Cell
from topk_platform.results.table import Table

__all__ = ["Block", "blocks", "chosen_metrics"]


@dataclass(frozen=True)
class Block:
    """A table's part for one metric.

    Args:
        table: The table.
        metric: The metric.
        corner: What the rows are: ``"loss"``, ``"regime"`` or ``"model"``.
        rows: The names of the rows.
        columns: The names of the columns.
        cells: The cells, by row and column; None if there is nothing to show.
    """

    table: Table
    metric: str
    corner: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell | None, ...], ...]

    @property
    def title(self) -> str:
        """The metric's name and unit."""
        return words.metric_title(self.metric)

    @property
    def common(self) -> str:
        """What all means without a lost seed have in common, such as "n = 5, one search"; empty if they differ."""
        sound = [cell for line in self.cells for cell in line if cell is not None and not cell.confirmed.lost]
        text = {cell_words.counted_seeds(cell.value) for cell in sound if cell.value is not None}
        return text.pop() if len(text) == 1 else ""

    @property
    def below(self) -> list[str]:
        """The lines below the block: the detectable difference, and columns without a value."""
        table, metric = self.table, self.metric
        return list(filter(None, (legend.detectable(table, metric), legend.empty_group(table, metric))))


def chosen_metrics(table: Table, metrics: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the metrics to show, by default the study's; raise ``UserError`` if one is not recorded.

    A file of findings has some of the study's metrics.
    """
    held = {metric for _, _, metric in table.cells}
    known = [metric for metric in table.study.tabled if table.stored or metric in held]
    for metric in metrics:
        if metric not in known:
            raise UserError(f"--metric must be one of {known}, got {metric!r}")
    return tuple(metrics) or table.study.show


def blocks(table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> tuple[Block, ...]:
    """Return a table's parts, one for each metric.

    Args:
        table: The table.
        metrics: The metrics to show; by default the study's.
        transpose: Whether losses are columns.

    Raises:
        UserError: if a metric is not recorded.
    """
    return tuple(_block(table, metric, transpose) for metric in chosen_metrics(table, metrics))


def _block(table: Table, metric: str, transpose: bool) -> Block:
    corner, rows, columns = ("loss", table.rows, table.columns)
    if transpose:
        corner, rows, columns = (table.across, table.columns, table.rows)
    cells = tuple(
        tuple(table.cells.get((*((c, r) if transpose else (r, c)), metric)) for c in columns) for r in rows
    )
    return Block(table, metric, corner, rows, columns, cells)
