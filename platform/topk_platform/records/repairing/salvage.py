"""Reading a damaged table: the live parts that its checksums and its log name, and the sound rows of these parts."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.errors import StoreError
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.storage.store import Store
from topk_platform.records.table.checksums import LOG, Checksums, log_name, newest, version_of
from topk_platform.records.table.logs import damaged_log, follows, log_lines
from topk_platform.records.table.opened import Opened, plain

__all__ = ["Salvage", "salvage"]

_MENTIONED = re.compile(rb'"(add|remove)":\{"path":"([^"]+)"')  # in the readable rest of a damaged log file
_CHECKPOINT = ".checkpoint.parquet"
_ROW = ("kind", "key", "epoch")


@dataclass
class Salvage:
    """What can be read of a table.

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
    def is_sound(self) -> bool:
        """Whether nothing is damaged."""
        return not (self.damaged or self.missing or self.lost)


@dataclass
class _Live:
    """The parts that a table consists of.

    Args:
        parts: The SHA-256 of each part by its path in the table's folder; empty if it is not known.
        uncertain: Whether rows may be in several of them.
    """

    parts: dict[str, str] = field(default_factory=dict)
    uncertain: bool = False


def salvage(store: Store, folder: str, *, summed: bool) -> Salvage:
    """Read every file of a table, and return what is sound.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
        summed: Whether the table should have checksums.

    Raises:
        StoreError: if the store cannot be read.
    """
    salvaged = Salvage()
    sums = _sums(store, folder, salvaged, summed)
    live = _live(store, folder, sums, salvaged)
    tables = list(_read(store, folder, live, salvaged))
    if tables:
        rows = pa.concat_tables(tables, promote_options="permissive")
        rows = _once(rows) if live.uncertain else rows
        salvaged.rows, salvaged.lost = _complete(
            rows, any("kind=epochs" in n for n in (*salvaged.damaged, *salvaged.missing))
        )
    return salvaged


def _sums(store: Store, folder: str, salvaged: Salvage, summed: bool) -> Checksums | None:
    try:
        sums = newest(store, folder)
    except DamagedError as error:
        salvaged.damaged.append(error.name)
        return None
    if sums is None and summed:
        salvaged.missing.append(f"{folder}/_checksums")
    return sums


def _live(store: Store, folder: str, sums: Checksums | None, salvaged: Salvage) -> _Live:
    """Return the live parts: those of the log if it is sound, otherwise those that checksums or log still name."""
    table, damage = store.at(folder), damaged_log(store, folder, sums)
    if damage is None:
        try:
            opened = Opened.checked(store, folder, sums)
        except StoreError as error:  # although each file of the log can be read
            damage = error if isinstance(error, DamagedError) else DamagedError(str(error), f"{folder}/{LOG}")
        else:
            if sums:
                return _Live({path: sums.parts.get(path, (0, ""))[1] for path in opened.parts})
            if all(map(table.exists, opened.parts)):
                return _Live(dict.fromkeys(opened.parts, ""))
            return _replayed(store, folder, salvaged, uncertain=True)
    live = _named_by_checksums(store, folder, sums, salvaged) if sums else _replayed(store, folder, salvaged)
    if damage.name not in (*salvaged.damaged, *salvaged.missing):
        is_there = table.exists(damage.name.removeprefix(f"{folder}/"))
        (salvaged.damaged if is_there else salvaged.missing).append(damage.name)
    return live


def _named_by_checksums(store: Store, folder: str, sums: Checksums, salvaged: Salvage) -> _Live:
    """Return the parts that the checksums name, updated by the sound commits after them."""
    live, table = _Live({path: digest for path, (_, digest) in sums.parts.items()}), store.at(folder)
    _note_log(store, folder, sums, salvaged)
    version = sums.version + 1
    while table.exists(name := log_name(version)):
        content = table.read(name)
        if not follows(content, sums.version):
            salvaged.damaged.append(f"{folder}/{name}")
            break
        _apply(live, log_lines(content))
        version += 1
    return live


def _note_log(store: Store, folder: str, sums: Checksums, salvaged: Salvage) -> None:
    for name, digest in sums.log.items():
        try:
            if store.digest(f"{folder}/{name}") != digest:
                salvaged.damaged.append(f"{folder}/{name}")
        except FileNotFoundError:
            salvaged.missing.append(f"{folder}/{name}")


def _replayed(store: Store, folder: str, salvaged: Salvage, *, uncertain: bool = False) -> _Live:
    """Return the parts that the log of a table without checksums names; damaged files of the log are skipped."""
    table = store.at(folder)
    first, live, mentioned = _checkpoint(table)
    live.uncertain = uncertain
    versions = sorted(v for name in table.names(LOG, ".json") if (v := version_of(name)) >= first)
    for expected, version in enumerate(versions, first):
        content = table.read(log_name(version))
        actions = log_lines(content)
        if not actions:
            salvaged.damaged.append(f"{folder}/{log_name(version)}")
        live.uncertain |= not actions or version != expected
        actions = actions or _mentioned(content)
        _apply(live, actions)
        mentioned |= {path for action in actions for path in _paths(action)}
    live.uncertain |= not versions and not first
    if live.uncertain:
        live.parts |= dict.fromkeys(_unmentioned(table, mentioned), "")
    return live


def _checkpoint(table: Store) -> tuple[int, _Live, set[str]]:
    """Return the first version after the newest readable checkpoint, its parts, and all paths that it mentions."""
    for name in reversed([name for name in table.names(LOG, _CHECKPOINT) if version_of(name) >= 0]):
        try:
            actions = pq.ParquetFile(io.BytesIO(table.read(f"{LOG}/{name}"))).read(
                ["add.path", "remove.path"]
            )
        except (pa.ArrowException, OSError):
            continue
        all_actions = [
            {kind: value for kind, value in action.items() if value} for action in actions.to_pylist()
        ]
        live = _Live()
        _apply(live, [action for action in all_actions if "add" in action])
        return version_of(name) + 1, live, {path for action in all_actions for path in _paths(action)}
    return 0, _Live(), set()


def _mentioned(content: bytes) -> list[dict[str, Any]]:
    return [
        {kind.decode(): {"path": path.decode("utf-8", "replace")}}
        for kind, path in _MENTIONED.findall(content)
    ]


def _paths(action: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("add", "remove"):
        if kind in action:
            yield unquote(action[kind]["path"])


def _apply(live: _Live, actions: Iterable[Mapping[str, Any]]) -> None:
    for action in actions:
        for path in _paths(action):
            live.parts.pop(path, None)
            if "add" in action:
                live.parts[path] = ""


def _unmentioned(table: Store, mentioned: set[str]) -> list[str]:
    """Return the parts on disk that no log file mentions; a lost log file may have added them."""
    folders = [folder for folder in table.folders() if folder.startswith("kind=")]
    parts = [f"{folder}/{name}" for folder in folders for name in table.names(folder, ".parquet")]
    return [path for path in parts if path not in mentioned]


def _read(store: Store, folder: str, live: _Live, salvaged: Salvage) -> Iterator[pa.Table]:
    for path, digest in sorted(live.parts.items()):
        name = f"{folder}/{path}"
        try:
            yield _part(store.read(name), path, digest)
        except FileNotFoundError:
            salvaged.missing.append(name)
        except StoreError:
            raise
        except (pa.ArrowException, OSError, ValueError):
            salvaged.damaged.append(name)


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


def _once(rows: pa.Table) -> pa.Table:
    """Return each row once, although it may be in several parts; trials with contradictory rows are left out."""
    first: dict[tuple[Any, ...], tuple[int, str]] = {}
    doubtful = set()
    for number, row in enumerate(rows.to_pylist()):
        known = first.setdefault(tuple(row[name] for name in _ROW), (number, repr(row)))
        if known[1] != repr(row):
            doubtful.add(row["key"])
    once = rows.take(pa.array([number for number, _ in first.values()], pa.int64()))
    return once.filter(pc.invert(pc.is_in(once["key"], pa.array(sorted(doubtful), pa.string()))))


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
