"""The snapshot of a study's ledger at the end of a run: two plain Parquet files for other tools."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.own_measures import recorded_values
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.checked_json import SCHEMA_VERSION
from topk_platform.specs import Scalar, canonical_json, digest

__all__ = ["is_current", "write_snapshot"]

_EPOCHS, _TRIALS = "tables/epochs.parquet", "tables/trials.parquet"
_CONTENT = b"topk.content"


def is_current(ledger: Ledger, counting: Collection[str], others: Iterable[str] = ()) -> bool:
    """Return whether a whole snapshot is there of the ledger as it is now and of exactly these counting trials.

    Args:
        ledger: The ledger.
        counting: The keys of the trials that count.
        others: Further files that belong to the snapshot, by their paths in the study's folder.
    """
    if not all(map(ledger.store.exists, (_EPOCHS, *others))):
        return False
    try:
        metadata = pq.ParquetFile(io.BytesIO(ledger.store.read(_TRIALS))).schema_arrow.metadata
    except (OSError, pa.ArrowException):  # missing or damaged
        return False
    # Another program may have written the file again, without metadata.
    return bool(metadata and metadata.get(_CONTENT) == _digest(ledger, counting))


def _digest(ledger: Ledger, counting: Collection[str]) -> bytes:
    """Return a digest of what a snapshot shows; a trial that ran again has the same key but ended later."""
    trials = ledger.read("trials", ["key", "ended"])
    shown = [trials[name].cast(pa.string()).to_pylist() for name in trials.column_names]
    return digest([shown, sorted(counting)]).encode()


def write_snapshot(ledger: Ledger, counting: Collection[str]) -> None:
    """Write ``tables/epochs.parquet``, then ``tables/trials.parquet``.

    :func:`is_current` reads the second file alone, so the other files of a snapshot must be written before it.

    The first has a row per trial and epoch. The second has a row per trial and seed, and a column ``param.NAME`` for
    each parameter. Its column ``counts`` says whether a row counts in the table of the study as it is defined now: its
    code, data and machine are the present ones, and it is within the budget. A confirmation must also be of the
    configuration that is now the best.

    If no trial has ended yet, nothing is written.
    """
    trials = ledger.read("trials")
    if not trials.num_columns:
        return
    trials = _spread(trials, "values", "param", json.loads)
    trials = _spread(trials, "own", "own", recorded_values)
    metadata = {b"topk.schema_version": str(SCHEMA_VERSION).encode(), _CONTENT: _digest(ledger, counting)}
    counts = pc.is_in(trials["key"], pa.array(sorted(counting), pa.string()))
    trials = trials.add_column(1, "counts", counts)
    with tempfile.TemporaryDirectory() as folder:
        made = {name: Path(folder) / Path(name).name for name in (_EPOCHS, _TRIALS)}
        with ledger.stream("epochs") as epochs:
            for file, batches in zip(made.values(), (epochs, trials.to_reader()), strict=True):
                schema = batches.schema.with_metadata(metadata)
                with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                    for batch in batches:
                        writer.write_batch(batch.cast(writer.schema))
        for name, file in made.items():
            ledger.store.write(name, file)


def _spread(trials: pa.Table, column: str, prefix: str, read: Callable[[str], dict[str, Scalar]]) -> pa.Table:
    """Return a table of trials with a column ``PREFIX.NAME`` for each value that a column's texts hold, in its place.

    Such a column has numbers if all its values are numbers, and booleans if all are booleans. Otherwise all values
    become texts.
    """
    if column not in trials.column_names:  # an older ledger's table
        return trials
    chosen = [read(text) for text in trials[column].to_pylist()]
    position = trials.column_names.index(column)
    trials = trials.drop_columns([column])
    for name in sorted({name for values in chosen for name in values}, reverse=True):
        trials = trials.add_column(
            position, f"{prefix}.{name}", _column([values.get(name) for values in chosen])
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
