"""Tables in the formats of the catalogue. Each format has a module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topk_platform.reports.catalogue import TABLE_FORMATS, function_of

if TYPE_CHECKING:
    from topk_platform.results.table import Table

__all__ = ["as_format"]


def as_format(output: str, table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> object:
    """Return a table in a format, as text or as an object that rich prints.

    Args:
        output: One of ``TABLE_FORMATS``.
        table: The table.
        metrics: The metrics to show; by default the study's, and in ``"csv"`` all.
        transpose: Whether losses are columns. ``"csv"`` always has a row for each cell.

    Raises:
        UserError: if a metric is not recorded.
    """
    return function_of(TABLE_FORMATS[output])(table, metrics, transpose=transpose)
