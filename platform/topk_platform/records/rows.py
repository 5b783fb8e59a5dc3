"""The rows of the ledger: their columns, and views that are made on first use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

import pyarrow as pa

from topk_platform.specs import Scalar, Schedule, TrialRecord, canonical_json

__all__ = [
    "EPOCHS_ONLY",
    "Late",
    "Row",
    "RowViews",
    "epoch_rows",
    "ledger_schema",
    "ledger_table",
    "to_rows",
    "trial_row",
    "with_parameters",
]

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


def to_rows(table: pa.Table) -> list[Row]:
    """Return a table's rows as dictionaries, three times as fast as Arrow. Equal texts share one object."""
    columns = [_items(column) for column in table.columns]
    names = table.column_names
    return [dict(zip(names, items, strict=True)) for items in zip(*columns, strict=True)]


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


_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = ("study", "arm", "arm_id", "regime", "model", "loss", "phase")
_MORE_TEXTS = ("status", "reason", "values", "config")
_LAST_TEXTS = ("code_version", "dataset_fingerprint", "versions", "artifacts")
EPOCHS_ONLY = ("epoch", "train.loss", "train.gradient_density", "seconds", "step_seconds", "learning_rate")
"""The columns that only rows of epochs use."""


def ledger_schema(metrics: Sequence[str]) -> pa.Schema:
    """Return the ledger's columns for a study's metrics: ``kind`` says whether a row is about a trial or an epoch.

    Both kinds are in one table so that a trial and its epochs are committed together. ``values`` holds the parameters
    as JSON, because a study's parameters may change: a parameter may be added, and a number may become a text.
    """
    fields = [pa.field(name, pa.string()) for name in ("kind", "key", *_TEXTS)]
    fields += [pa.field(name, pa.int64()) for name in ("number", "seed")]
    fields += [pa.field(name, pa.string()) for name in _MORE_TEXTS]
    fields += [pa.field(f"{split}.{m}", pa.float64()) for split in ("validation", "test") for m in metrics]
    fields += [pa.field("train_seconds", pa.float64()), pa.field("epochs", pa.int64())]
    fields += [pa.field(name, _TIME) for name in ("started", "ended")]
    fields += [pa.field(name, pa.string()) for name in _LAST_TEXTS]
    fields += [pa.field(name, pa.int64() if name == "epoch" else pa.float64()) for name in EPOCHS_ONLY]
    return pa.schema(fields)


def ledger_table(records: Iterable[TrialRecord], schema: pa.Schema) -> pa.Table:
    """Return the rows of records: one for each trial, and one for each of its epochs."""
    rows: list[dict[str, Any]] = []
    for record in records:
        rows += [{"kind": "trials", **trial_row(record)}]
        rows += [{"kind": "epochs", **row} for row in epoch_rows(record)]
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if field.type == _TIME:  # for datetimes, Arrow would import pandas
            values = [None if value is None else round(value.timestamp() * 1e6) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def trial_row(record: TrialRecord) -> dict[str, Any]:
    """Return the row of a record's trial."""
    trial, arm = record.trial, record.trial.arm
    values = {n: str(v) if isinstance(v, Schedule) else v for n, v in trial.parameters.items()}
    files = {"missing": record.missing, "sha256": record.artifacts}
    return {
        "key": trial.key,
        "study": trial.study,
        "arm": arm.name,
        "arm_id": trial.arm_id,
        "regime": arm.regime.name,
        "model": arm.model.label,
        "loss": arm.loss.label,
        "phase": trial.phase,
        "number": trial.number,
        "seed": trial.seed,
        "status": record.status,
        "reason": record.reason,
        "values": json.dumps(values),
        "config": trial.to_json(),
        **_prefixed("validation", record.validation),
        **_prefixed("test", record.test or {}),
        "train_seconds": record.train_seconds,
        "epochs": record.epochs[-1].epoch if record.epochs else 0,
        "started": datetime.fromtimestamp(record.started, UTC),
        "ended": datetime.fromtimestamp(record.ended, UTC),
        "code_version": trial.code_version,
        "dataset_fingerprint": trial.dataset_fingerprint,
        "versions": canonical_json(record.versions),
        "artifacts": canonical_json(files) if any(files.values()) else None,
    }


def epoch_rows(record: TrialRecord) -> list[dict[str, Any]]:
    """Return the rows of a record's epochs."""
    return [
        {
            "key": record.trial.key,
            "epoch": epoch.epoch,
            "train.loss": epoch.train_loss,
            "train.gradient_density": epoch.gradient_density,
            **_prefixed("validation", epoch.validation),
            "seconds": epoch.seconds,
            "step_seconds": epoch.step_seconds,
            "learning_rate": epoch.learning_rate,
        }
        for epoch in record.epochs
    ]


def _prefixed(prefix: str, items: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in items.items()}


def with_parameters(trials: pa.Table) -> pa.Table:
    """Return a table of trials with a column ``param.NAME`` for each parameter, in place of the column ``values``.

    A parameter's column has numbers if all its values are numbers, and booleans if all are booleans. Otherwise all
    values become texts.
    """
    chosen: list[dict[str, Scalar]] = [json.loads(text) for text in trials["values"].to_pylist()]
    position = trials.column_names.index("values")
    trials = trials.drop_columns(["values"])
    for name in sorted({name for values in chosen for name in values}, reverse=True):
        trials = trials.add_column(
            position, f"param.{name}", _column([values.get(name) for values in chosen])
        )
    return trials


def _column(values: Sequence[Scalar]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return pa.array(values, pa.float64() if float in kinds else pa.int64())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    return pa.array(
        [v if v is None or isinstance(v, str) else canonical_json(v) for v in values], pa.string()
    )
