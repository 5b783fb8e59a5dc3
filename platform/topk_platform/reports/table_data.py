"""Results as data: tables as Arrow, Parquet and CSV, and what each arm came to as JSON for MLflow."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from topk_platform.records.history import ArmHistory
from topk_platform.records.rows import Row
from topk_platform.reports.result_tables import chosen_metrics, to_markdown
from topk_platform.reports.text_tables import markdown_table, rows_to_csv
from topk_platform.results.cells import Cell
from topk_platform.results.intervals import Estimate
from topk_platform.results.table import Table
from topk_platform.specs import Arm, number_text
from topk_platform.specs.arm import described

__all__ = [
    "arms_to_json",
    "arrow_table",
    "parquet",
    "to_arrow",
    "to_csv",
    "to_files",
    "to_rows",
]

_Rows = list[dict[str, Any]]

_KINDS = {
    pa.string(): "loss regime model metric covers difference_covers family mark status key published_split "
    "published_source name confused_name",
    pa.int64(): "n seeds diverged failed search_trials search_diverged search_failed difference_n seed published_n "
    "class images k confused_with",
    pa.bool_(): "best equivalent",
}
_TYPES = {name: kind for kind, names in _KINDS.items() for name in names.split()}
"""The types of the columns that do not hold floating-point numbers."""


def arrow_table(columns: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as an Arrow table.

    Args:
        columns: The names of the columns, which decide their types.
        rows: The values of each row by column; None if there is no value.
    """
    return pa.Table.from_pylist(rows, pa.schema([(name, _TYPES.get(name, pa.float64())) for name in columns]))


def to_arrow(table: Table) -> pa.Table:
    """Return a row for each metric of each cell. Shares are fractions of 1, sizes are numbers of classes.

    ``seeds`` is the number of confirmations that have ended; ``diverged`` and ``failed`` are the numbers of those
    without a result. ``n`` is the number of seeds of the mean. ``low`` and ``high`` are the ends of the mean's 95 %
    interval, and ``covers`` says what this interval covers. ``p`` is the difference's two-sided p-value by the
    interval's variance, and ``p_holm`` is ``p``, corrected for all differences of the metric's family. ``p_equivalent``
    is the p-value of equivalence within the study's tolerance. ``detectable`` is the smallest true difference that has
    a chance of 80 % to be marked.

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
        "seeds": cell.confirmed.ended,
        "diverged": cell.confirmed.diverged,
        "failed": cell.confirmed.failed,
        "search_trials": cell.searched.ended,
        "search_diverged": cell.searched.diverged,
        "search_failed": cell.searched.failed,
        "best": cell.best,
        "difference": difference.pop("mean"),
        **{f"difference_{name}": value for name, value in difference.items()},
        "p": None if cell.difference is None else _known(cell.difference.p),
        "p_holm": cell.p_holm,
        "p_equivalent": cell.p_equivalent,
        "detectable": cell.detectable,
        "family": "primary" if cell.primary else "secondary",
        "mark": cell.mark,
        "equivalent": cell.equivalent,
        "published": published and published.value / 100,
        "published_sd": None if published is None or published.spread is None else published.spread / 100,
        "published_n": published and published.runs,
        "published_split": published and published.split,
        "published_source": published and published.source,
    }


def _estimated(estimate: Estimate | None) -> dict[str, Any]:
    names = ("mean", "half_width", "low", "high", "covers", "n")
    return {name: _known(getattr(estimate, name, None)) for name in names}


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _seeds(table: Table) -> _Rows:
    """Return a row for each ended confirmation of the table's arms, with its status and its test metrics."""
    return [
        {
            **dict(zip(("loss", table.across), key, strict=True)),
            "seed": seed,
            "status": row["status"],
            "key": row["key"],
            **{metric: row[f"test.{metric}"] for metric in table.study.tabled},
        }
        for key, confirmations in table.confirmations.items()
        for seed, row in confirmations.items()
    ]


def parquet(table: pa.Table) -> bytes:
    """Return an Arrow table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def to_csv(table: Table, metrics: Sequence[str] = ()) -> str:
    """Return the rows of :func:`to_arrow` as CSV with a header.

    Args:
        table: The table.
        metrics: The metrics to write; by default all that are recorded.

    Raises:
        UserError: if a metric is not recorded.
    """
    return rows_to_csv(_columns(table), to_rows(table, metrics))


def to_files(table: Table) -> dict[str, bytes]:
    """Return the files of a study's ``tables`` folder by name.

    These are the table as Markdown, CSV and Parquet, and its seeds as CSV and Parquet.
    """
    columns, seeds = ["loss", table.across, "seed", "status", "key", *table.study.tabled], _seeds(table)
    return {
        "table.md": to_markdown(table).encode(),
        "table.csv": to_csv(table).encode(),
        "table.parquet": parquet(to_arrow(table)),
        "seeds.csv": rows_to_csv(columns, seeds).encode(),
        "seeds.parquet": parquet(arrow_table(columns, seeds)),
    }


def arms_to_json(table: Table, histories: Mapping[str, ArmHistory]) -> str:
    """Return JSON with what each arm came to, by its identity.

    This is its name, the metric and the configuration that were chosen by, its test metrics and a note in Markdown.

    Args:
        table: The study's table with all its arms.
        histories: Each arm's history, by the arm's ID.
    """
    cells = {row["arm_id"]: key for key, rows in table.confirmations.items() for row in rows.values()}
    result = {
        arm_id: _arm_data(table, history.arm, cells[arm_id])
        for arm_id, history in histories.items()
        if arm_id in cells
    }
    return json.dumps(result, indent=1, sort_keys=True) + "\n"


def _arm_data(table: Table, arm: Arm, key: tuple[str, str]) -> dict[str, Any]:
    rows = list(table.confirmations[key].values())
    estimates = {
        metric: cell.value
        for metric in table.study.tabled
        if (cell := table.cells.get((*key, metric))) is not None and cell.value is not None
    }
    return {
        "name": arm.name,
        "metric": arm.metric,
        "parameters": {name: str(value) for name, value in described(arm).items()} | _common(rows),
        "metrics": {
            name: value for metric, e in estimates.items() for name, value in _numbers(metric, e).items()
        },
        "note": _note(table, arm, estimates),
    }


def _common(rows: Sequence[Row]) -> dict[str, str]:
    """Return the parameters of the confirmations; if searches chose different values, all are listed."""
    result: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, value in json.loads(row["values"]).items():
            if value is not None:
                result.setdefault(name, {})[str(value)] = None
    return {name: ", ".join(values) for name, values in result.items()}


def _numbers(metric: str, estimate: Estimate) -> dict[str, float]:
    numbers = {f"test.{metric}.mean": estimate.mean, f"test.{metric}.n": float(estimate.n)}
    return numbers | ({f"test.{metric}.half_width": estimate.half_width} if estimate.n > 1 else {})


def _note(table: Table, arm: Arm, estimates: Mapping[str, Estimate]) -> str:
    numbers = [
        (m, number_text(m, e.mean), number_text(m, e.half_width) if e.n > 1 else "", str(e.n), e.covers)
        for m, e in estimates.items()
    ]
    title = f"**{arm.name}** of study {table.study.name}, selected by {arm.metric} of the validation split"
    return f"{title}\n\n{markdown_table(('test metric', 'mean', '±', 'seeds', 'covers'), numbers)}\n"
