"""What tables are written as: a file for each format, and here the table of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from topk_platform.reports.table import Table

__all__ = ["FORMATS", "as_format"]

FORMATS: Mapping[str, str] = {
    "rich": "terminal:to_rich",
    "md": "markdown:to_markdown",
    "csv": "data:to_csv",
    "latex": "latex:to_latex",
    "html": "html:to_html",
}
"""By name, the function that writes it; its module is loaded when it is asked for."""


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
