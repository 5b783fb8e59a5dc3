"""The ledger's two tables: their columns, their versions, and rows from records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from topk_platform.specs import Choice, Dimension, Float, Int, Scalar, Study, TrialRecord, canonical_json

__all__ = ["SCHEMA_VERSION", "epochs_schema", "epochs_table", "merge", "trials_schema", "trials_table"]

SCHEMA_VERSION = 1

_TEXT = ("key", "study", "arm", "arm_id", "regime", "model", "loss", "phase")
_METADATA = {b"topk.schema_version": str(SCHEMA_VERSION).encode()}


def trials_schema(study: Study) -> pa.Schema:
    """Return the columns of ``trials`` for a study: one row per (trial, seed)."""
    fields = [pa.field(name, pa.string(), nullable=False) for name in _TEXT]
    fields += [pa.field("number", pa.int64(), nullable=False), pa.field("seed", pa.int64(), nullable=False)]
    fields += [pa.field(name, pa.string(), nullable=False) for name in ("status", "reason", "config")]
    fields += [pa.field(f"param.{name}", kind) for name, kind in sorted(_parameter_types(study).items())]
    fields += [
        pa.field(f"{split}.{m}", pa.float64()) for split in ("validation", "test") for m in study.metrics
    ]
    fields += [pa.field("train_seconds", pa.float64()), pa.field("epochs", pa.int64())]
    fields += [pa.field(name, pa.timestamp("us", tz="UTC")) for name in ("started", "ended")]
    fields += [pa.field(name, pa.string()) for name in ("code_version", "dataset_fingerprint", "versions")]
    return pa.schema(fields, metadata=_METADATA)


def epochs_schema(study: Study) -> pa.Schema:
    """Return the columns of ``epochs`` for a study: one row per trial and epoch."""
    fields = [pa.field("key", pa.string(), nullable=False), pa.field("epoch", pa.int64(), nullable=False)]
    names = ["train.loss", *(f"validation.{m}" for m in study.metrics), "seconds", "learning_rate"]
    names += ["train.gradient_density", "step_seconds"]
    return pa.schema([*fields, *(pa.field(name, pa.float64()) for name in names)], metadata=_METADATA)


def merge(wanted: pa.Schema, found: pa.Schema) -> pa.Schema:
    """Return ``wanted`` with the columns of ``found`` that it lacks; types that differ are widened.

    Whole and real numbers meet in float64, anything else in text.
    """
    types = {field.name: field for field in wanted}
    for field in found:
        mine = types.get(field.name)
        if mine is None:
            types[field.name] = field
        elif mine.type != field.type:
            types[field.name] = pa.field(field.name, _wider(mine.type, field.type), nullable=mine.nullable)
    return pa.schema(sorted(types.values(), key=lambda f: _place(wanted, f.name)), metadata=wanted.metadata)


def _place(wanted: pa.Schema, name: str) -> tuple[int, str]:
    if (index := wanted.get_field_index(name)) >= 0:
        return index, name
    prefix = name.partition(".")[0] + "."
    siblings = [i for i, known in enumerate(wanted.names) if known.startswith(prefix)]
    return (siblings[-1] if siblings else len(wanted.names)), name


def _parameter_types(study: Study) -> dict[str, pa.DataType]:
    types: dict[str, pa.DataType] = {}
    for arm in study.arms:
        found = {name: _dimension_type(dimension) for name, dimension in arm.loss.space.items()}
        found |= {name: _scalar_type(value) for name, value in arm.loss.fixed.items()}
        for name, kind in found.items():
            types[name] = _wider(types[name], kind) if name in types else kind
    return types


def _dimension_type(dimension: Dimension) -> pa.DataType:
    match dimension:
        case Float():
            return pa.float64()
        case Int():
            return pa.int64()
        case Choice(options):
            return _wider_all(_scalar_type(option) for option in options)


def _scalar_type(value: Scalar) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    return pa.null() if value is None else pa.string()


def _wider_all(kinds: Iterable[pa.DataType]) -> pa.DataType:
    widest = pa.null()
    for kind in kinds:
        widest = _wider(widest, kind)
    return widest


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or other == pa.null():
        return one
    if one == pa.null():
        return other
    return pa.float64() if {one, other} == {pa.int64(), pa.float64()} else pa.string()


def trials_table(records: Iterable[TrialRecord], schema: pa.Schema) -> pa.Table:
    """Return the ``trials`` rows of records."""
    rows = [_trial_row(record) for record in records]
    return _table(rows, schema)


def epochs_table(records: Iterable[TrialRecord], schema: pa.Schema) -> pa.Table:
    """Return the ``epochs`` rows of records."""
    return _table([row for record in records for row in _epoch_rows(record)], schema)


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([_fit(row.get(f.name), f.type) for row in rows], f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _fit(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if kind == pa.string() and not isinstance(value, str):
        return canonical_json(value)
    if kind == pa.timestamp("us", tz="UTC"):
        return round(value * 1e6)
    return value


def _trial_row(record: TrialRecord) -> dict[str, Any]:
    trial, arm = record.trial, record.trial.arm
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
        "config": trial.to_json(),
        **_prefixed("param", trial.parameters),
        **_prefixed("validation", record.validation),
        **_prefixed("test", record.test or {}),
        "train_seconds": record.train_seconds,
        "epochs": record.epochs[-1].epoch if record.epochs else 0,
        "started": record.started,
        "ended": record.ended,
        "code_version": trial.code_version,
        "dataset_fingerprint": trial.dataset_fingerprint,
        "versions": canonical_json(record.versions),
    }


def _epoch_rows(record: TrialRecord) -> list[dict[str, Any]]:
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
