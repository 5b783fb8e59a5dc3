"""Rows of named values as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["rows_to_csv"]


def rows_to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    r"""Return rows as CSV with a header; None is an empty cell.

    Args:
        columns: The columns in their order.
        rows: The values of each row by column; other columns are left out.

    Example:
        >>> rows_to_csv(["arm", "n"], [{"arm": "clean", "n": 5, "why": ""}, {"arm": "noisy", "n": None}])
        'arm,n\nclean,5\nnoisy,\n'
    """
    # Arrow would import pandas to make an array of Python's values.
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
