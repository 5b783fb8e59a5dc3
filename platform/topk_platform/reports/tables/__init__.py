"""The formats of tables: a module for each, listed here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from topk_platform.results.table import Table

__all__ = ["FORMATS", "as_format"]

FORMATS: Mapping[str, str] = {
    "rich": "terminal:to_rich",
    "md": "markdown:to_markdown",
    "csv": "data:to_csv",
    "latex": "latex:to_latex",
    "html": "html:to_html",
}
"""The function that writes each format, by name; its module is loaded on first use."""


def as_format(output: str, table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> object:
    """Return a table in a format: text, or what rich prints.

    Args:
        output: One of ``FORMATS``.
        table: The table.
        metrics: Those to show; by default the study's, and in ``"csv"`` all.
        transpose: Whether losses are columns; ``"csv"`` has a row for each cell in any case.

    Raises:
        UserError: if a metric is not recorded.
    """
    module, _, function = FORMATS[output].partition(":")
    made = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return made(table, metrics, transpose=transpose)
