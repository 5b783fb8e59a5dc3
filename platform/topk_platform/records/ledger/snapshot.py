"""The ledger as two plain Parquet files for other tools, written again at the end of each run."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.records.table.opened import one_line_errors
from topk_platform.records.table.schema import SCHEMA_VERSION, with_parameters
from topk_platform.specs import digest

__all__ = ["is_current", "write_snapshot"]

_FILES = ("tables/trials.parquet", "tables/epochs.parquet")
_COUNTING = b"topk.counting"


def is_current(store: Store, counting: Collection[str]) -> bool:
    """Return whether a snapshot exists and was written for exactly these counting trials.

    Args:
        store: The study's folder.
        counting: The keys of the trials that count.
    """
    try:
        metadata = pq.ParquetFile(io.BytesIO(store.read(_FILES[0]))).schema_arrow.metadata
    except (OSError, pa.ArrowException):  # missing or damaged
        return False
    return bool(metadata.get(_COUNTING) == _digest(counting))


def _digest(counting: Collection[str]) -> bytes:
    return digest(sorted(counting)).encode()


def write_snapshot(ledger: Ledger, counting: Collection[str]) -> None:
    """Write ``tables/trials.parquet`` and ``tables/epochs.parquet``.

    The first has a row per trial and seed, the second a row per trial and epoch. Each parameter has its own column
    ``param.NAME``. The column ``counts`` says whether a row counts in the table of the study as it is defined now: its
    code, data and machine are the present ones, and it is within the budget. A confirmation must also be of the
    configuration that is now the best.

    If no trial has ended yet, nothing is written.

    Args:
        ledger: The ledger.
        counting: The keys of the trials that count.
    """
    trials = ledger.read("trials")
    if not trials.num_columns:
        return
    trials = with_parameters(trials)
    metadata = {b"topk.schema_version": str(SCHEMA_VERSION).encode(), _COUNTING: _digest(counting)}
    counts = pc.is_in(trials["key"], pa.array(sorted(counting), pa.string()))
    trials = trials.add_column(1, "counts", counts)
    with tempfile.TemporaryDirectory() as folder, one_line_errors(ledger.store):
        for name, batches in zip(_FILES, (trials.to_reader(), ledger.stream("epochs")), strict=True):
            file = Path(folder) / Path(name).name
            with pq.ParquetWriter(file, batches.schema.with_metadata(metadata), compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch.cast(writer.schema))
            ledger.store.write(name, file)
