"""Rows of the ledger as they are read: columns and curves are converted to Python's values on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Curves", "Late", "Row", "RowViews"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

Row = Mapping[str, Any]
"""One row of a table."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CODES: dict[pa.DataType, Literal["i", "q", "d"]] = {pa.int32(): "i", pa.int64(): "q", pa.float64(): "d"}


class Late(Mapping[_Key, _Value]):
    """A mapping that is made when it is first used.

    Args:
        make: Returns the mapping as a dictionary.

    Example:
        >>> late = Late(lambda: {"tau": 0.5})
        >>> late["tau"], len(late)
        (0.5, 1)
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], dict[_Key, _Value]]) -> None:
        self._make = make
        self._made: dict[_Key, _Value] | None = None

    @property
    def _items(self) -> dict[_Key, _Value]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, key: _Key) -> _Value:
        return self._items[key]

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[type[dict[_Key, _Value]], tuple[dict[_Key, _Value]]]:
        return dict, (self._items,)  # without all that it is made from


class RowViews:
    """The rows of a table. A column is converted to Python values when one of its values is first used.

    This saves time because most values are never used: a table over a million trials uses a third of the
    columns, and only one row in a thousand of the others.

    Args:
        table: The rows.

    Example:
        >>> rows = RowViews(pa.table({"key": ["a", "b"], "number": [0, 1]}))
        >>> [row["key"] for row in rows], rows.column("number")
        (['a', 'b'], [0, 1])
    """

    def __init__(self, table: pa.Table) -> None:
        self._columns = _Columns(table)
        self._count: int = table.num_rows

    def column(self, name: str) -> list[Any]:
        """Return a column's values; an empty list if the table is empty, because it may then have no columns."""
        return self._columns[name] if self._count else []

    def __iter__(self) -> Iterator[Row]:
        return (_View(self._columns, index) for index in range(self._count))


class _Columns(dict[str, list[Any]]):
    """Columns by name, each converted from Arrow when it is first used."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> list[Any]:
        self[name] = values = _items(self.table.column(name))
        return values


class _View(Mapping[str, Any]):
    __slots__ = ("_columns", "_index")

    def __init__(self, columns: _Columns, index: int) -> None:
        self._columns = columns
        self._index = index

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.table.column_names)

    def __len__(self) -> int:
        return len(self._columns.table.column_names)

    def __repr__(self) -> str:
        return repr(dict(self))


def _items(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        # Arrow would use pandas to make datetimes, and importing pandas takes as long as everything else.
        numbers = column.cast(pa.int64()).to_pylist()
        return [n if n is None else _EPOCH + timedelta(microseconds=n) for n in numbers]
    if not column.null_count and pa.types.is_string(column.type):
        encoded = column.combine_chunks().dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        return [texts[i] for i in _numbers(encoded.indices)]
    if not column.null_count and column.type in _CODES:
        return _numbers(column.combine_chunks())
    items: list[Any] = column.to_pylist()
    return items


def _numbers(array: pa.Array) -> list[Any]:
    # to_numpy would import pandas.
    held = memoryview(array.buffers()[1]).cast("B").cast(_CODES[array.type])
    return held[array.offset : array.offset + len(array)].tolist()


class Curves(Mapping[str, Mapping[int, float]]):
    """The values of each trial by epoch, for each trial's key.

    A study has twenty or more epochs per trial, and a search uses only the curves of the arms that it continues. So a
    curve is a range in two columns until it is first used. Then it is converted to Python's numbers.

    Args:
        table: The columns ``key`` and ``epoch`` and those of the metrics, ordered by key and epoch.
        metric: The column of the values.

    Example:
        >>> rows = {"key": ["a", "a", "b"], "epoch": [1, 2, 1], "validation.top5": [0.5, 0.75, 0.25]}
        >>> curves = Curves(pa.table(rows), "validation.top5")
        >>> dict(curves["a"]), curves["b"] == {1: 0.25}, "c" in curves, len(curves)
        ({1: 0.5, 2: 0.75}, True, False, 2)
    """

    def __init__(self, table: pa.Table, metric: str) -> None:
        self._columns = tuple(table[name].combine_chunks() for name in ("epoch", metric) if table.num_rows)
        self._spans: dict[str, tuple[int, int]] = {}
        begin = 0
        for chunk in table["key"].chunks if table.num_rows else ():
            runs = pc.run_end_encode(chunk, run_end_type=pa.int64())
            ends = [begin + end for end in runs.run_ends.to_pylist()]
            for key, start, end in zip(runs.values.to_pylist(), [begin, *ends], ends, strict=False):
                # A chunk may end within a curve.
                self._spans[key] = (self._spans.get(key, (start, end))[0], end)
            begin += len(chunk)

    def __getitem__(self, key: str) -> Mapping[int, float]:
        start, end = self._spans[key]
        return Late(
            lambda: dict(zip(*(column[start:end].to_pylist() for column in self._columns), strict=True))
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)
