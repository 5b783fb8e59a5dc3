"""Rows as CSV and as a Markdown table, and the output of rich as text."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, RenderableType

__all__ = ["as_text", "markdown_table", "rows_to_csv"]


def rows_to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    r"""Return rows as CSV with a header; None is an empty cell.

    Args:
        columns: The names of the columns, in their order.
        rows: The values of each row by column. Values of other columns are left out.

    Example:
        >>> rows_to_csv(["arm", "n"], [{"arm": "clean", "n": 5, "why": ""}, {"arm": "noisy", "n": None}])
        'arm,n\nclean,5\nnoisy,\n'
    """
    # Python's writer is used because Arrow would import pandas to convert Python's values.
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    Args:
        header: The names of the columns.
        rows: The texts of each row.

    Example:
        >>> print(markdown_table(["arm", "n"], [["clean", "5"]]))
        | arm | n |
        | --- | --- |
        | clean | 5 |
    """
    lines = ([_in_cell(text) for text in line] for line in (header, ["---"] * len(header), *rows))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _in_cell(text: str) -> str:
    """Return a text, such as the name of a class, without what would end its cell or its row."""
    return " ".join(text.splitlines()).replace("|", r"\|")


def as_text(shown: RenderableType) -> str:
    r"""Return the text that a terminal would show, without colours.

    It is as wide as the terminal, or 120 letters if there is none.

    Example:
        >>> as_text("a line")
        'a line\n'
    """
    width = shutil.get_terminal_size((120, 24)).columns
    # In Jupyter mode, a notebook would show the captured output too, in colours.
    console = Console(file=io.StringIO(), force_jupyter=False, color_system=None, width=width)
    with console.capture() as written:
        console.print(shown)
    return written.get()
