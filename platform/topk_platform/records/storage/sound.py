"""The sound rows of a damaged table: those of every part that its checksums or its log name, and that can be read."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.errors import StoreError
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.storage.checksums import LOG, Checksums, damaged_logs, newest
from topk_platform.records.storage.opened import Opened, kind_of, plain
from topk_platform.records.storage.store import Store
from topk_platform.specs import Trial

__all__ = ["Sound", "sound_rows"]


@dataclass
class Sound:
    """What is sound of a table.

    Args:
        damaged: The files that are damaged, by their paths in the study's folder.
        missing: The files that are missing.
        rows: All sound rows; those of trials that are not complete are left out.
        lost: How many trials with sound rows are left out because some of their epochs are missing.
    """

    damaged: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    lost: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not (self.damaged or self.missing or self.lost)


def sound_rows(store: Store, folder: str, *, summed: bool) -> Sound:
    """Read every file of a table, and return what is sound.

    If neither the checksums nor the log can be read, nobody knows which parts belong to the table, and no row counts as
    sound.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
        summed: Whether the table should have checksums.

    Raises:
        StoreError: if the store cannot be read.
    """
    sound = Sound()
    parts = _parts(store, folder, _sums(store, folder, sound, summed), sound)
    tables = list(_read(store, folder, parts, sound))
    if tables:
        rows = pa.concat_tables(tables, promote_options="permissive")
        trials = set(rows.filter(pc.equal(rows["kind"], "trials"))["key"].to_pylist())
        cut = any("kind=epochs" in name for name in (*sound.damaged, *sound.missing))
        torn = _torn(rows) if cut else set[str]()
        sound.rows = rows.filter(pc.is_in(rows["key"], pa.array(sorted(trials - torn), pa.string())))
        sound.lost = len(torn)
    return sound


def _sums(store: Store, folder: str, sound: Sound, summed: bool) -> Checksums | None:
    try:
        sums = newest(store, folder)
    except DamagedError as error:
        sound.damaged.append(error.name)
        return None
    if sums is None and summed:
        sound.missing.append(f"{folder}/_checksums")
    return sums


def _parts(store: Store, folder: str, sums: Checksums | None, sound: Sound) -> Mapping[str, str]:
    """Return the SHA-256 of each part by its path: the parts that the log names or, if it is damaged, the checksums.

    A SHA-256 is empty if no checksum says it.
    """
    known = sums.parts if sums else {}
    names = [error.name for error in damaged_logs(store, folder, sums)]
    if not names:
        try:
            return {path: known.get(path, "") for path in Opened.checked(store, folder, sums).parts}
        except StoreError:  # although each file of the log can be read
            names = [f"{folder}/{LOG}"]
    for name in names:
        (sound.damaged if store.exists(name) else sound.missing).append(name)
    return known


def _read(store: Store, folder: str, parts: Mapping[str, str], sound: Sound) -> Iterator[pa.Table]:
    for path, digest in sorted(parts.items()):
        name = f"{folder}/{path}"
        try:
            yield _part(store.read(name), path, digest)
        except FileNotFoundError:
            sound.missing.append(name)
        except StoreError:
            raise
        except (pa.ArrowException, OSError, ValueError):
            sound.damaged.append(name)


def _part(content: bytes, path: str, digest: str) -> pa.Table:
    """Return the rows of a part.

    Raises:
        ValueError: if it does not have its checksum, or cannot be read as Parquet.
    """
    if digest and sha256(content).hexdigest() != digest:
        raise ValueError("the content does not have its checksum")
    rows, kind = pq.ParquetFile(io.BytesIO(content)).read(), kind_of(path)
    rows = rows.cast(plain(rows.schema))
    return rows.add_column(0, "kind", pa.array([kind] * len(rows), pa.string()))


def _torn(rows: pa.Table) -> set[str]:
    """Return the keys of trials of which a validated epoch is missing."""
    epochs = rows.filter(pc.equal(rows["kind"], "epochs"))
    kept = set(zip(epochs["key"].to_pylist(), epochs["epoch"].to_pylist(), strict=True))
    torn = set()
    for trial in (
        rows.filter(pc.equal(rows["kind"], "trials")).select(["key", "epochs", "config"]).to_pylist()
    ):
        recipe = Trial.from_json(trial["config"]).arm.recipe
        validated = filter(recipe.evaluates, range(1, trial["epochs"] + 1))
        if any((trial["key"], epoch) not in kept for epoch in validated):
            torn.add(trial["key"])
    return torn
