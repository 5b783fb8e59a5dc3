"""The sound rows of a damaged table: those of every part that its checksums or its log name, and that can be read."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.errors import StoreError
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.storage.checksums import LOG, Checksums, damaged_logs, newest
from topk_platform.records.storage.opened import Opened, plain
from topk_platform.records.storage.store import Store

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
        cut = any("kind=epochs" in name for name in (*sound.damaged, *sound.missing))
        sound.rows, sound.lost = _complete(rows, cut)
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


def _parts(store: Store, folder: str, sums: Checksums | None, sound: Sound) -> dict[str, str]:
    """Return the SHA-256 of each part by its path: the parts that the log names or, if it is damaged, the checksums.

    A SHA-256 is empty if no checksum says it.
    """
    known = {path: digest for path, (_, digest) in sums.parts.items()} if sums else {}
    errors = list(damaged_logs(store, folder, sums))
    if not errors:
        try:
            return {path: known.get(path, "") for path in Opened.checked(store, folder, sums).parts}
        except DamagedError as error:  # although each file of the log can be read
            errors = [error]
        except StoreError as error:
            errors = [DamagedError(str(error), f"{folder}/{LOG}")]
    for name in (error.name for error in errors):
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
    rows = pq.ParquetFile(io.BytesIO(content)).read()
    kind = posixpath.dirname(path).removeprefix("kind=")
    rows = rows.cast(plain(rows.schema))
    return rows.add_column(0, "kind", pa.array([kind] * len(rows), pa.string()))


def _complete(rows: pa.Table, cut: bool) -> tuple[pa.Table, int]:
    """Return the rows of trials that have all their epochs, and the number of other trials.

    Args:
        rows: The rows.
        cut: Whether a part with epochs was lost. It may have held the first epochs of a trial whose last epoch is
            still there.
    """
    trials = rows.filter(pc.equal(rows["kind"], "trials"))
    epochs = rows.filter(pc.equal(rows["kind"], "epochs"))
    last, arms = _by_key(trials, "epochs"), _by_key(trials, "arm_id")
    kept = set(zip(epochs["key"].to_pylist(), epochs["epoch"].to_pylist(), strict=True))
    torn = {key for key, epoch in last.items() if epoch and (key, epoch) not in kept}
    if cut:
        torn |= _without_first(kept, arms)
    sound = pa.array(sorted(last.keys() - torn), pa.string())
    return rows.filter(pc.is_in(rows["key"], sound)), len(torn)


def _by_key(rows: pa.Table, name: str) -> dict[str, Any]:
    return dict(zip(rows["key"].to_pylist(), rows[name].to_pylist(), strict=True))


def _without_first(epochs: Iterable[tuple[str, int]], arms: Mapping[str, str]) -> set[str]:
    """Return the trials whose first epoch comes after the first one of another trial of their arm."""
    first: dict[str, int] = {}
    for key, epoch in epochs:
        first[key] = min(epoch, first.get(key, epoch))
    least: dict[str, int] = {}
    for key, epoch in first.items():
        arm = arms.get(key, "")
        least[arm] = min(epoch, least.get(arm, epoch))
    return {key for key, epoch in first.items() if key in arms and epoch > least[arms[key]]}
