"""Finding one recorded trial by its key, and the whole ledger as two plain Parquet files for other tools."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.errors import UserError
from topk_platform.records.ledger import Ledger, is_study
from topk_platform.records.rows import Row, with_parameters
from topk_platform.records.storage.checked_json import SCHEMA_VERSION
from topk_platform.records.storage.opened import one_line_errors
from topk_platform.records.storage.store import Store
from topk_platform.specs import Trial, digest

__all__ = ["RecordedTrial", "find", "is_current", "write_snapshot"]


@dataclass(frozen=True)
class RecordedTrial:
    """A recorded trial: its ledger row and its epochs' rows."""

    row: Row
    epochs: list[Row]

    @property
    def trial(self) -> Trial:
        """The trial as it was planned."""
        return Trial.from_json(self.row["config"])


def find(key: str, store: str | Path = "runs") -> RecordedTrial:
    """Return the trial whose key begins with ``key``, from any study of the store.

    Args:
        key: The trial's key or its first characters.
        store: Folder or URI of the results.

    Raises:
        UserError: if no trial or several match, or ``key`` cannot be a trial's.
        StoreError: if the store cannot be listed, or no trial matches and a study that cannot be read may hold it.
    """
    root = Store.open(store)
    matches, errors, where = [], list[UserError](), f"starts_with(key, '{_checked(key)}')"
    for study in root.folders():
        try:
            ledger = Ledger.open(root, study)
            matches += [(ledger, row) for row in ledger.rows(where)]
        except UserError as error:
            # A folder that is not a study, such as MLflow's artifacts, cannot hold the trial.
            errors += [error] if is_study(root, study) else []
    if errors and not matches:
        raise errors[0]
    if len(matches) != 1:
        raise UserError(
            f"key {key!r} must be the key of one trial in store {str(store)!r}, got {len(matches)} trials; "
            "`topk export STUDY --format csv --to trials.csv` lists a study's trials with their keys"
        )
    ledger, row = matches[0]
    return RecordedTrial(row, ledger.read("epochs", where=f"key = '{row['key']}'").to_pylist())


def _checked(key: str) -> str:
    if not key.isalnum():
        raise UserError(f"key must be a trial's key or its first letters, got {key!r}")
    return key


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

    Args:
        ledger: The ledger.
        counting: The keys of the trials that count.
    """
    trials = ledger.read("trials")
    if not trials.num_columns:
        return
    trials = with_parameters(trials)
    metadata = {b"topk.schema_version": str(SCHEMA_VERSION).encode(), _CONTENT: _digest(ledger, counting)}
    counts = pc.is_in(trials["key"], pa.array(sorted(counting), pa.string()))
    trials = trials.add_column(1, "counts", counts)
    with tempfile.TemporaryDirectory() as folder, one_line_errors(ledger.store):
        for name, batches in ((_EPOCHS, ledger.stream("epochs")), (_TRIALS, trials.to_reader())):
            file = Path(folder) / Path(name).name
            with pq.ParquetWriter(file, batches.schema.with_metadata(metadata), compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch.cast(writer.schema))
            ledger.store.write(name, file)
