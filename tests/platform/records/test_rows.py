"""Rows and curves as views of columns: the same as dictionaries of the same table, made of what is asked for alone."""

from __future__ import annotations

import itertools
import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_platform.protocol import Ended
from topk_platform.records.rows import Curves, RowViews

METRIC = "validation.top5"
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
    assert [dict(view) for view in views] == table.to_pylist()
    assert [views.column(name) for name in table.column_names] == [c.to_pylist() for c in table.columns]


def test_they_are_mappings() -> None:
    first, _, last = RowViews(TABLE)
    assert last["number"] == 1 and last == dict(last)
    assert first.get("epoch") is None and "key" in first
    with pytest.raises(KeyError, match="epoch"):
        first["epoch"]


def test_a_table_without_columns_has_no_rows() -> None:
    empty = pa.table({})
    assert list(RowViews(empty)) == RowViews(empty).column("key") == [] and dict(Curves(empty, METRIC)) == {}


def test_columns_that_nobody_asks_for_stay_as_they_are() -> None:
    views = RowViews(TABLE)
    assert [view["number"] for view in views] == [2, 0, 1]
    assert set(views._columns) == {"number"}


VALUES = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=5)


def a_table(curves: dict[str, dict[int, float | None]], cuts: list[int]) -> pa.Table:
    """The rows of curves, ordered by key and epoch, in chunks that end at ``cuts``."""
    rows = [(key, epoch, value) for key in sorted(curves) for epoch, value in curves[key].items()]
    types = {"key": pa.string(), "epoch": pa.int64(), METRIC: pa.float64()}
    whole = pa.table({n: pa.array([row[i] for row in rows], t) for i, (n, t) in enumerate(types.items())})
    places = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    return pa.concat_tables(whole[a:b] for a, b in itertools.pairwise(places))


@given(st.dictionaries(st.text("abc", min_size=1), VALUES, min_size=1), st.lists(st.integers(0, 30)))
def test_they_are_the_rows_of_each_trial(values: dict[str, list[float | None]], cuts: list[int]) -> None:
    curves = {key: dict(enumerate(result, start=1)) for key, result in values.items()}
    result = Curves(a_table(curves, cuts), METRIC)
    assert {key: dict(curve) for key, curve in result.items()} == curves == dict(result)
    assert len(result) == len(curves) and result.get("d", {}) == {}


def test_a_trials_curve_is_a_mapping_like_any_other() -> None:
    curve = Curves(a_table({"a": {2: 0.5, 4: 0.75}, "b": {1: 1.0}}, []), METRIC)["a"]
    ended = Ended(0, {}, "completed", curve)
    assert ended == Ended(0, {}, "completed", {2: 0.5, 4: 0.75}) and ended.objective == 0.75
    assert curve.get(3) is None and repr(curve) == "{2: 0.5, 4: 0.75}"
    assert type(pickle.loads(pickle.dumps(curve))) is dict  # noqa: S301 - our own
    with pytest.raises(KeyError):
        curve[3]
