"""Rows as views of columns: the same as dictionaries of the same table, made of what is asked for alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from topk_platform.records.rows import RowViews, to_rows

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TABLE = pa.table(
    {
        "key": ["a", "b", "a"],
        "reason": ["why", None, ""],
        "number": pa.array([2, 0, 1], pa.int32()),
        "top1": [0.5, None, 0.25],
        "ended": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "UTC")),
        "finite": [True, False, None],
    }
)


@pytest.mark.parametrize(
    "table", [TABLE, pa.concat_tables([TABLE, TABLE.slice(1)]), TABLE.slice(1), TABLE.slice(3)]
)
def test_views_are_the_rows(table: pa.Table) -> None:
    views = RowViews(table)
    assert [dict(view) for view in views] == to_rows(table) == table.to_pylist()
    assert [views.column(name) for name in table.column_names] == [c.to_pylist() for c in table.columns]


def test_they_are_mappings() -> None:
    first, _, last = RowViews(TABLE)
    assert last["number"] == 1 and last == dict(last)
    assert first.get("epoch") is None and "key" in first
    with pytest.raises(KeyError, match="epoch"):
        first["epoch"]


def test_a_table_without_columns_has_no_rows() -> None:
    assert list(RowViews(pa.table({}))) == [] == RowViews(pa.table({})).column("key")


def test_columns_that_nobody_asks_for_stay_as_they_are() -> None:
    views = RowViews(TABLE)
    assert [view["number"] for view in views] == [2, 0, 1]
    assert set(views._columns) == {"number"}
