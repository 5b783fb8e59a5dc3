"""A table on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from rich.console import Console, ConsoleOptions, Group, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from topk_platform.reports.answer import answer
from topk_platform.reports.fitting import fitted, needed
from topk_platform.reports.tables import cell_words
from topk_platform.reports.tables import notes as table_notes
from topk_platform.reports.tables.blocks import Block, blocks
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

    @cache
    def turned() -> Sequence[Block]:
        return blocks(table, metrics, transpose=True)

    parts: list[tuple[_Fitted | Text, ...]] = [
        (_Fitted(block, turned, number), *(Text(line, style="dim") for line in block.below))
        for number, block in enumerate(blocks(table, metrics, transpose=transpose))
    ]
    text = Text(answer(table, metrics[0] if metrics else main_metric(table.study)), style="bold")
    return Group(*(part for pair in parts for part in pair if part), text, *below)


@dataclass(frozen=True)
class _Fitted:
    """A block of a table as wide as the terminal allows.

    If its columns do not fit side by side, it has losses as columns where that takes fewer parts, and is printed in
    parts, one below the other.

    Args:
        block: The block as it was requested.
        turned: Returns all blocks of the table with losses as columns.
        number: Which of these is this block.
    """

    block: Block
    turned: Callable[[], Sequence[Block]]
    number: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable]:
        grid = _Grid.of(self.block)
        parts = grid.parts(options.max_width)
        if len(parts) > 1:  # a large table takes long to lay out once more
            other = _Grid.of(self.turned()[self.number])
            fewer = other.parts(options.max_width)
            grid, parts = (other, fewer) if len(fewer) < len(parts) else (grid, parts)
        for number, columns in enumerate(parts):
            yield grid.shown(columns, options.max_width, titled=number == 0)


@dataclass(frozen=True)
class _Grid:
    """The texts of a block, by column: the header, then a cell for each row. The first column has the rows' names."""

    title: str
    columns: tuple[tuple[Text, ...], ...]

    @classmethod
    def of(cls, block: Block) -> _Grid:
        common = block.common
        names = (block.corner, *(row.replace("_", " ").replace("-", " ") for row in block.rows))
        cells = (
            (Text(name.replace("-", " ").replace("_", " ")), *(_rich_cell(cell, common) for cell in column))
            for name, column in zip(block.columns, zip(*block.cells, strict=True), strict=True)
        )
        return cls(block.title + (f" ({common})" if common else ""), (tuple(map(Text, names)), *cells))

    def parts(self, width: int) -> list[list[int]]:
        """Return the numbers of the columns that are printed side by side, without the first, part for part."""
        first, *others = map(needed, self.columns)
        parts: list[list[int]] = [[]]
        room = width - 1 - first
        for column, letters in enumerate(others, start=1):
            if parts[-1] and letters > room:
                parts.append([])
                room = width - 1 - first
            parts[-1].append(column)
            room -= letters
        return parts

    def _those(self, numbers: Sequence[int]) -> list[tuple[Text, ...]]:
        return [self.columns[number] for number in (0, *numbers)]

    def shown(self, numbers: Sequence[int], width: int, *, titled: bool) -> RichTable:
        """Return the table of some columns."""
        columns = self._those(numbers)
        table = RichTable(title=self.title if titled else None, title_justify="left", show_lines=True)
        for (header, *_), wide in zip(columns, fitted(columns, width), strict=True):
            side: JustifyMethod = "right" if table.columns else "left"
            table.add_column(header, width=wide, justify=side, overflow="fold")
        for cells in zip(*(column[1:] for column in columns), strict=True):
            table.add_row(*cells)
        return table


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
