"""The selection metric by epoch of every trial, kept in columns until it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from topk_platform.records.table.rows import Late

__all__ = ["Curves"]

_Curve = Mapping[int, float]


class Curves(Mapping[str, _Curve]):
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

    def __getitem__(self, key: str) -> _Curve:
        start, end = self._spans[key]
        return Late(lambda: dict(zip(*(one[start:end].to_pylist() for one in self._columns), strict=True)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)
