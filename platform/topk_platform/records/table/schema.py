"""The columns of the ledger, the conversion of records to rows, and parameters as separate columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from topk_platform.errors import StoreError
from topk_platform.specs import Parameter, Scalar, Schedule, Study, TrialRecord, canonical_json

__all__ = [
    "EPOCHS_ONLY",
    "SCHEMA_VERSION",
    "check_version",
    "epoch_rows",
    "ledger_columns",
    "ledger_schema",
    "ledger_table",
    "trial_row",
    "with_parameters",
]

SCHEMA_VERSION = 2

_TEXTS = ("study", "arm", "arm_id", "regime", "model", "loss", "phase")
_MORE_TEXTS = ("status", "reason", "values", "config")
_LAST_TEXTS = ("code_version", "dataset_fingerprint", "versions", "artifacts")
EPOCHS_ONLY = (
    "epoch",
    "train.loss",
    "train.gradient_density",
    "seconds",
    "step_seconds",
    "learning_rate",
)
"""The columns that only rows of epochs use."""


def check_version(uri: str, version: int) -> None:
    """Raise ``StoreError`` unless a store has the schema that this program reads and writes.

    Args:
        uri: The store, as the user wrote it.
        version: The version in the file that marks it.
    """
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"store {uri!r} has schema version {version}, but this program reads {SCHEMA_VERSION}: another version of "
            "topk-studies has written it, so use that version, or choose another --store"
        )


def ledger_schema(study: Study) -> pa.Schema:
    """Return the ledger's columns for a study: ``kind`` says whether a row is about a trial or about an epoch.

    Both kinds are in one table so that a trial and its epochs are committed together. ``values`` holds the parameters
    as JSON, because a study's parameters may change: a parameter may be added, and a number may become a text.
    """
    return ledger_columns(study.metrics)


def ledger_columns(metrics: Sequence[str]) -> pa.Schema:
    """Return the ledger's columns for a study with these metrics, as :func:`ledger_schema` does."""
    fields = [pa.field(name, pa.string()) for name in ("kind", "key", *_TEXTS)]
    fields += [pa.field(name, pa.int64()) for name in ("number", "seed")]
    fields += [pa.field(name, pa.string()) for name in _MORE_TEXTS]
    fields += [pa.field(f"{split}.{m}", pa.float64()) for split in ("validation", "test") for m in metrics]
    fields += [pa.field("train_seconds", pa.float64()), pa.field("epochs", pa.int64())]
    fields += [pa.field(name, pa.timestamp("us", tz="UTC")) for name in ("started", "ended")]
    fields += [pa.field(name, pa.string()) for name in _LAST_TEXTS]
    fields += [pa.field(name, pa.int64() if name == "epoch" else pa.float64()) for name in EPOCHS_ONLY]
    return pa.schema(fields)


def ledger_table(records: Iterable[TrialRecord], schema: pa.Schema) -> pa.Table:
    """Return the rows of records: one for each trial, and one for each of its epochs."""
    rows = [row for record in records for row in _rows(record)]
    columns = [pa.array([_fit(row.get(f.name), f.type) for row in rows], f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _rows(record: TrialRecord) -> Iterator[dict[str, Any]]:
    yield {"kind": "trials", **trial_row(record)}
    for row in epoch_rows(record):
        yield {"kind": "epochs", **row}


def _fit(value: Any, kind: pa.DataType) -> Any:
    if value is not None and kind == pa.timestamp("us", tz="UTC"):
        return round(value.timestamp() * 1e6)
    return value


def trial_row(record: TrialRecord) -> dict[str, Any]:
    """Return the row of a record's trial."""
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
        "values": json.dumps({name: _plain(value) for name, value in trial.parameters.items()}),
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
        "artifacts": _artifacts(record),
    }


def _artifacts(record: TrialRecord) -> str | None:
    """Return the facts about the files of a record's trial as JSON; None for a trial without files."""
    facts = {"missing": record.missing, "sha256": record.artifacts}
    return canonical_json(facts) if any(facts.values()) else None


def _plain(value: Parameter) -> Scalar:
    return str(value) if isinstance(value, Schedule) else value


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
