"""A table as Arrow, Parquet and CSV: every metric of every cell, and every confirmed run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from topk_platform.records import Tally
from topk_platform.reports.plain_text import rows_to_csv
from topk_platform.reports.tables.blocks import chosen_metrics
from topk_platform.reports.tables.markdown import to_markdown
from topk_platform.results.arm_fronts import front_rows
from topk_platform.results.cells import Cell
from topk_platform.results.statistics import Estimate
from topk_platform.results.table import Table

__all__ = ["to_arrow", "to_csv", "to_files", "to_parquet", "to_rows", "to_seeds"]

_Kinds = Mapping[str, pa.DataType]
_Rows = Sequence[tuple[Any, ...]]

_COLUMNS = (
    ("loss", pa.string()),
    ("regime", pa.string()),
    ("metric", pa.string()),
    ("mean", pa.float64()),
    ("half_width", pa.float64()),
    ("low", pa.float64()),
    ("high", pa.float64()),
    ("covers", pa.string()),
    ("n", pa.int64()),
    ("seeds", pa.int64()),
    ("diverged", pa.int64()),
    ("failed", pa.int64()),
    ("search_trials", pa.int64()),
    ("search_diverged", pa.int64()),
    ("search_failed", pa.int64()),
    ("best", pa.bool_()),
    ("difference", pa.float64()),
    ("difference_half_width", pa.float64()),
    ("difference_low", pa.float64()),
    ("difference_high", pa.float64()),
    ("difference_covers", pa.string()),
    ("difference_n", pa.int64()),
    ("p", pa.float64()),
    ("p_wilcoxon", pa.float64()),
    ("p_holm", pa.float64()),
    ("p_equivalent", pa.float64()),
    ("detectable", pa.float64()),
    ("improvement", pa.float64()),
    ("family", pa.string()),
    ("mark", pa.string()),
    ("equivalent", pa.bool_()),
    ("dropped_out", pa.bool_()),
    ("published", pa.float64()),
    ("published_sd", pa.float64()),
    ("published_n", pa.int64()),
    ("published_split", pa.string()),
    ("published_source", pa.string()),
)


def to_arrow(table: Table) -> pa.Table:
    """Return every metric of every cell, a row each, shares as fractions of 1 and sizes as numbers of classes.

    ``seeds`` is how many confirmations have ended, ``diverged`` and ``failed`` how many of them have no result; ``n``
    is how many the mean is over. ``low`` and ``high`` are the ends of its 95 % interval, ``covers`` says what that
    covers. ``p`` is the difference's two-sided p-value by the interval's variance, ``p_wilcoxon`` that of Wilcoxon's
    signed-rank test over seeds, and ``p_holm`` is p corrected for all differences of the metric's family.
    ``p_equivalent`` is that of equivalence within the study's tolerance, and ``detectable`` the smallest true
    difference with a chance of 80 % to be marked. ``improvement`` is the probability that a run beats one
    of the baseline's.

    The column ``regime`` is called ``model`` where the table's columns are models.
    """
    return _arrow(*_cells(table))


def _cells(table: Table) -> tuple[_Kinds, _Rows]:
    kinds = {table.across if name == "regime" else name: kind for name, kind in _COLUMNS}
    return kinds, [(*key, *_values(cell)) for key, cell in table.cells.items()]


def _values(cell: Cell) -> tuple[float | str | None, ...]:
    runs = (_ended(cell.confirmed), _ended(cell.searched))
    tests = (
        None if cell.difference is None else _known(cell.difference.p),
        cell.p_wilcoxon,
        cell.p_holm,
        cell.p_equivalent,
        cell.detectable,
        cell.improvement,
        "primary" if cell.primary else "secondary",
    )
    difference = (*_estimated(cell.difference), *tests, cell.mark, cell.equivalent, cell.stopped)
    return (*_estimated(cell.value), *runs[0], *runs[1], cell.best, *difference, *_published_values(cell))


def _ended(tally: Tally) -> tuple[int, int, int]:
    return tally.ended, tally.diverged, tally.failed


def _estimated(estimate: Estimate | None) -> tuple[float | str | None, ...]:
    if estimate is None:
        return (None,) * 6
    return (
        estimate.mean,
        estimate.half_width,
        _known(estimate.low),
        _known(estimate.high),
        estimate.covers,
        estimate.n,
    )


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def _published_values(cell: Cell) -> tuple[float | str | None, ...]:
    result = cell.published
    if result is None:
        return (None,) * 5
    spread = None if result.spread is None else result.spread / 100
    return result.value / 100, spread, result.runs, result.split, result.source


def to_seeds(table: Table) -> pa.Table:
    """Return every ended confirmation of the table's arms, a row each: how it ended, and its test metrics."""
    return _arrow(*_seeds(table))


def _seeds(table: Table) -> tuple[_Kinds, _Rows]:
    kinds = dict.fromkeys(("loss", table.across), pa.string())
    kinds |= {"seed": pa.int64(), "status": pa.string(), "key": pa.string()}
    kinds |= dict.fromkeys(table.study.tabled, pa.float64())
    rows = [
        (*key, seed, row["status"], row["key"], *(row[f"test.{m}"] for m in table.study.tabled))
        for key, confirmations in table.confirmations.items()
        for seed, row in confirmations.items()
    ]
    return kinds, rows


def _arrow(kinds: _Kinds, rows: _Rows) -> pa.Table:
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds.values())]
    return pa.Table.from_arrays(columns, names=list(kinds))


def to_parquet(table: Table) -> bytes:
    """Return what :func:`to_arrow` returns, as a Parquet file."""
    return _parquet(to_arrow(table))


def to_csv(table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> str:  # noqa: ARG001 - as all formats
    """Return what :func:`to_arrow` returns, as CSV with a header.

    Args:
        table: The table.
        metrics: Those to write; by default all that are recorded.
        transpose: Changes nothing: there is a row for each cell.

    Raises:
        UserError: if a metric is not recorded.
    """
    return _csv(*_chosen_cells(table, metrics))


def to_rows(table: Table, metrics: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return what :func:`to_arrow` returns, a dictionary for each row; None where there is no value.

    Args:
        table: The table.
        metrics: Those to return; by default all that are recorded.

    Raises:
        UserError: if a metric is not recorded.
    """
    kinds, rows = _chosen_cells(table, metrics)
    return [dict(zip(kinds, row, strict=True)) for row in rows]


def _chosen_cells(table: Table, metrics: Sequence[str]) -> tuple[_Kinds, _Rows]:
    kinds, rows = _cells(table)
    requested = set(chosen_metrics(table, metrics)) if metrics else set(table.study.tabled)
    return kinds, [row for row in rows if row[2] in requested]


def to_files(table: Table) -> dict[str, bytes]:
    """Return the files of a study's ``tables`` folder by name: the table and its seeds, to read and to work with."""
    return {
        "table.md": to_markdown(table).encode(),
        "table.csv": to_csv(table).encode(),
        "table.parquet": to_parquet(table),
        "seeds.csv": _csv(*_seeds(table)).encode(),
        "seeds.parquet": _parquet(to_seeds(table)),
        **({"fronts.csv": _csv(*_fronts(table)).encode()} if table.fronts else {}),
    }


def _fronts(table: Table) -> tuple[_Kinds, _Rows]:
    """Return every metric of every point of the fronts, and each front's hypervolume, a row each."""
    kinds = dict.fromkeys(("loss", table.across), pa.string()) | {"search": pa.int64(), "values": pa.string()}
    kinds |= {"metric": pa.string(), "validation": pa.float64(), "mean": pa.float64()}
    kinds |= {"half_width": pa.float64(), "low": pa.float64(), "high": pa.float64()}
    kinds |= {"covers": pa.string(), "n": pa.int64()}
    points = [
        (row, column, search, json.dumps(dict(values)), metric, validation, *_estimated(test))
        for row, column, search, values, metric, validation, test in front_rows(table.fronts)
    ]
    volumes = [
        (*key, None, None, "hypervolume", None, *_estimated(front.volume))
        for key, front in table.fronts.items()
    ]
    return kinds, [*points, *volumes]


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def _csv(kinds: _Kinds, rows: _Rows) -> str:
    return rows_to_csv(list(kinds), (dict(zip(kinds, row, strict=True)) for row in rows))
