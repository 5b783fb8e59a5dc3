"""A table as Arrow, Parquet and CSV: every metric of every cell, and every confirmed run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from topk_platform.records import Tally
from topk_platform.reports.plain_text import rows_to_csv
from topk_platform.reports.tables.blocks import chosen_metrics
from topk_platform.reports.tables.markdown import to_markdown
from topk_platform.results.cells import Cell
from topk_platform.results.intervals import Estimate
from topk_platform.results.table import Table

__all__ = ["arrow_table", "parquet", "to_arrow", "to_csv", "to_files", "to_parquet", "to_rows", "to_seeds"]

_Rows = list[dict[str, Any]]

_TEXTS = (
    *("loss", "regime", "model", "metric", "covers", "difference_covers", "family", "mark", "status", "key"),
    *("published_split", "published_source", "name", "confused_name"),
)
_COUNTS = (
    *(
        "n",
        "seeds",
        "diverged",
        "failed",
        "search_trials",
        "search_diverged",
        "search_failed",
        "difference_n",
    ),
    *("seed", "published_n", "class", "images", "k", "confused_with"),
)
_FLAGS = ("best", "equivalent")
_KINDS = {
    **dict.fromkeys(_TEXTS, pa.string()),
    **dict.fromkeys(_COUNTS, pa.int64()),
    **dict.fromkeys(_FLAGS, pa.bool_()),
}
"""The types of the columns that do not hold floating-point numbers."""


def arrow_table(columns: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as an Arrow table.

    Args:
        columns: The names of the columns, which decide their types.
        rows: The values of each row by column; None if there is no value.
    """
    return pa.Table.from_pylist(rows, pa.schema([(name, _KINDS.get(name, pa.float64())) for name in columns]))


def to_arrow(table: Table) -> pa.Table:
    """Return a row for each metric of each cell. Shares are fractions of 1, sizes are numbers of classes.

    ``seeds`` is the number of confirmations that have ended; ``diverged`` and ``failed`` are the numbers of those
    without a result. ``n`` is the number of seeds of the mean. ``low`` and ``high`` are the ends of the mean's 95 %
    interval, and ``covers`` says what this interval covers. ``p`` is the difference's two-sided p-value by the
    interval's variance, and ``p_holm`` is ``p``, corrected for all differences of the metric's family. ``p_equivalent``
    is the p-value of equivalence within the study's tolerance. ``detectable`` is the smallest true difference that has
    a chance of 80 % to be marked. ``improvement`` is the probability that a run beats a run of the baseline.

    The column ``regime`` is called ``model`` if the table's columns are models.
    """
    return arrow_table(_columns(table), to_rows(table))


def to_rows(table: Table, metrics: Sequence[str] = ()) -> _Rows:
    """Return the rows of :func:`to_arrow` as dictionaries; None stands for a missing value.

    Args:
        table: The table.
        metrics: The metrics to return; by default all that are recorded.

    Raises:
        UserError: if a metric is not recorded.
    """
    requested = chosen_metrics(table, metrics) if metrics else table.study.tabled
    return [_row(table, key, cell) for key, cell in table.cells.items() if key[2] in requested]


def _columns(table: Table) -> list[str]:
    return list(_row(table, ("", "", ""), Cell(None)))


def _row(table: Table, key: tuple[str, str, str], cell: Cell) -> dict[str, Any]:
    published, difference = cell.published, _estimated(cell.difference)
    return {
        **dict(zip(("loss", table.across, "metric"), key, strict=True)),
        **_estimated(cell.value),
        **dict(zip(("seeds", "diverged", "failed"), _ended(cell.confirmed), strict=True)),
        **dict(
            zip(("search_trials", "search_diverged", "search_failed"), _ended(cell.searched), strict=True)
        ),
        "best": cell.best,
        "difference": difference.pop("mean"),
        **{f"difference_{name}": value for name, value in difference.items()},
        "p": None if cell.difference is None else _known(cell.difference.p),
        "p_holm": cell.p_holm,
        "p_equivalent": cell.p_equivalent,
        "detectable": cell.detectable,
        "improvement": cell.improvement,
        "family": "primary" if cell.primary else "secondary",
        "mark": cell.mark,
        "equivalent": cell.equivalent,
        "published": published and published.value / 100,
        "published_sd": None if published is None or published.spread is None else published.spread / 100,
        "published_n": published and published.runs,
        "published_split": published and published.split,
        "published_source": published and published.source,
    }


def _ended(tally: Tally) -> tuple[int, int, int]:
    return tally.ended, tally.diverged, tally.failed


def _estimated(estimate: Estimate | None) -> dict[str, Any]:
    names = ("mean", "half_width", "low", "high", "covers", "n")
    values = {name: getattr(estimate, name, None) for name in names}
    return values | {name: _known(values[name]) for name in ("half_width", "low", "high")}


def _known(number: float | None) -> float | None:
    return None if number is None or math.isnan(number) else number


def to_seeds(table: Table) -> pa.Table:
    """Return a row for each ended confirmation of the table's arms, with its status and its test metrics."""
    return arrow_table(*_seeds(table))


def _seeds(table: Table) -> tuple[list[str], _Rows]:
    columns = ["loss", table.across, "seed", "status", "key", *table.study.tabled]
    rows = [
        (*key, seed, row["status"], row["key"], *(row[f"test.{metric}"] for metric in table.study.tabled))
        for key, confirmations in table.confirmations.items()
        for seed, row in confirmations.items()
    ]
    return columns, [dict(zip(columns, row, strict=True)) for row in rows]


def parquet(table: pa.Table) -> bytes:
    """Return an Arrow table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def to_parquet(table: Table) -> bytes:
    """Return the table of :func:`to_arrow` as a Parquet file."""
    return parquet(to_arrow(table))


def to_csv(table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> str:  # noqa: ARG001 - all formats have it
    """Return the rows of :func:`to_arrow` as CSV with a header.

    Args:
        table: The table.
        metrics: The metrics to write; by default all that are recorded.
        transpose: Has no effect, because there is a row for each cell.

    Raises:
        UserError: if a metric is not recorded.
    """
    return rows_to_csv(_columns(table), to_rows(table, metrics))


def to_files(table: Table) -> dict[str, bytes]:
    """Return the files of a study's ``tables`` folder by name.

    These are the table as Markdown, CSV and Parquet, and its seeds as CSV and Parquet.
    """
    return {
        "table.md": to_markdown(table).encode(),
        "table.csv": to_csv(table).encode(),
        "table.parquet": to_parquet(table),
        "seeds.csv": rows_to_csv(*_seeds(table)).encode(),
        "seeds.parquet": parquet(to_seeds(table)),
    }
