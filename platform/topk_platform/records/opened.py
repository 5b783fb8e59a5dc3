"""A study's table, opened and checked: its log against its checksums, and each part before it is read."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from topk_platform.errors import StoreError, reason
from topk_platform.records.checked import DamagedError, damaged
from topk_platform.records.checksums import (
    LOG,
    Checksums,
    digest_files,
    live_parts,
    log_name,
    newest,
    version_of,
    view_of,
)
from topk_platform.records.mark import FOLDER, Mark, repair_of
from topk_platform.records.store import Store

__all__ = [
    "AFTER",
    "Opened",
    "address",
    "damaged_log",
    "exists",
    "follows",
    "is_part",
    "log_lines",
    "plain",
    "told",
]

AFTER = "topk.after"
"""The key of a commit's metadata that holds the version of the newest checksums when it was made."""

_FAILURES = (DeltaError, OSError, pa.ArrowException)
_PANIC = (
    "PanicException"  # what an error in the library itself raises; it is no Exception, and has no public name
)
_PART = re.compile(r"kind=\w+/[\w.-]+\.parquet")
# The system's errors but "no such file", and those of a server but "not found": the file is sound as far as is known.
_UNREACHABLE = re.compile(r"\(os error (?!2\))|Error performing (?!.*\b404\b)")
_PATIENCE = {"max_retries": "4", "retry_timeout": "20s"}
_SOUND: set[tuple[str, str]] = set()  # parts that this process has checked, by address and checksum
_T = TypeVar("_T")


def exists(store: Store) -> bool:
    """Return whether a study's folder holds a table.

    Raises:
        StoreError: if it should, for it has checksums, and does not.
    """
    mark = Mark.read(store)
    folder = mark.table if mark else FOLDER
    if store.exists(f"{folder}/{LOG}"):
        return True
    if mark and mark.checksums:
        raise _missing(store, f"{folder}/{LOG}")
    return False


def address(store: Store, folder: str) -> tuple[str, dict[str, str] | None]:
    """Return where Delta Lake finds a table, and the options to reach it.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
    """
    place = store.at(folder)
    if place.local is not None:
        return place.root, None
    options = {f"aws_{name}": value for name, value in place.options.items()}
    return place.root, {**_PATIENCE, **options, "allow_http": str(place.is_plain).lower()}


@contextmanager
def told(store: Store, use: str = "read", folder: str = FOLDER) -> Iterator[None]:
    """Turn whatever Delta Lake says of a study's table within the block into one line, which names a damaged file.

    Args:
        store: The study's folder.
        use: What the block does, ``"read"`` or ``"written"``: where writing fails, the file that it names is no damaged
            one but its own.
        folder: The table's folder in the study's.
    """
    try:
        yield
    except _FAILURES as error:
        raise _error(store, use, folder, str(error)) from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise _error(store, use, folder, str(error)) from error


def _error(store: Store, use: str, folder: str, said: str) -> StoreError:
    part = _PART.search(said) if use == "read" and not _UNREACHABLE.search(said) else None
    if part:
        return _unsound(store, f"{folder}/{part.group()}")
    return StoreError(f"store {store.uri!r} cannot be {use}: {reason(RuntimeError(said))}")


def _unsound(store: Store, name: str) -> DamagedError:
    return damaged(store, name, _runs_again(store), "damaged or missing")


def _missing(store: Store, name: str) -> DamagedError:
    return damaged(store, name, _remedy(store), "missing")


def _runs_again(store: Store) -> str:
    return f"{repair_of(store)} sets it aside, so that its trials run again"


def _remedy(store: Store) -> str:
    return f"{repair_of(store)} makes a sound table of what can be read"


@dataclass(frozen=True)
class Opened:
    """A study's table as it is now.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
        table: The table.
        sums: Its newest checksums; None for a table of an earlier version, which is taken as it is.
    """

    store: Store
    folder: str
    table: DeltaTable
    sums: Checksums | None

    @classmethod
    def of(cls, store: Store, folder: str | None = None) -> Opened:
        """Return the table of a study's folder.

        Args:
            store: The study's folder.
            folder: The table's folder in it; by default the one that the study's mark names.

        Raises:
            StoreError: if a file of its log is damaged or missing, with the file's name, or it cannot be read.
        """
        mark = Mark.read(store) if folder is None else None
        folder = folder or (mark.table if mark else FOLDER)
        sums = newest(store, folder)  # before the table, which may go on meanwhile
        if sums is None and mark and mark.checksums:
            raise _missing(store, f"{folder}/_checksums")
        return cls.checked(store, folder, sums)

    @classmethod
    def checked(cls, store: Store, folder: str, sums: Checksums | None) -> Opened:
        """Return a table whose log leads to what its checksums say.

        Args:
            store: The study's folder.
            folder: The table's folder in it.
            sums: The table's newest checksums, read before.

        Raises:
            StoreError: if it does not, or cannot be read.
        """
        opened = cls(store, folder, _open(store, folder, sums), sums)
        opened._check_log()
        return opened

    def _check_log(self) -> None:
        """Compare what the log says with its checksums.

        Raises:
            StoreError: if they differ.
        """
        if self.sums is None:
            return
        version = self.table.version()
        if version < self.sums.version:
            raise _missing(self.store, f"{self.folder}/{log_name(version + 1)}")
        table = self.table if version == self.sums.version else self._before()
        if view_of(table) != self.sums.view:
            raise damaged_log(self.store, self.folder, self.sums) or damaged(
                self.store, f"{self.folder}/{LOG}", _remedy(self.store)
            )

    def _before(self) -> DeltaTable:
        """Return the table as of its checksums, after a look at the commits since, after which a process was killed."""
        assert self.sums is not None  # noqa: S101 - for the type checker
        for version in range(self.sums.version + 1, self.table.version() + 1):
            name = f"{self.folder}/{log_name(version)}"
            if not follows(self.store.read(name), self.sums.version):
                raise damaged(self.store, name, _remedy(self.store))
        return _open(self.store, self.folder, self.sums, self.sums.version)

    @cached_property
    def parts(self) -> Mapping[str, int]:
        """The size in bytes of each part, by its path in the table's folder."""
        return live_parts(self.table)

    def check_parts(self, kinds: Collection[str] = ("trials", "epochs"), *, again: bool = False) -> None:
        """Compare parts with their checksums, each once in a process.

        Args:
            kinds: Which rows are about to be read.
            again: Whether to compare those anew that this process has compared before.

        Raises:
            StoreError: if a part is damaged or missing, with its name.
        """
        known = self.sums.parts if self.sums else {}
        wanted = [path for path in self.parts if path in known and _kind(path) in kinds]
        wanted = [path for path in wanted if again or (self._at(path), known[path][1]) not in _SOUND]
        for path, digest in self._digests(wanted).items():
            if digest != known[path][1]:
                raise _unsound(self.store, f"{self.folder}/{path}")
            _SOUND.add((self._at(path), digest))

    def _at(self, path: str) -> str:
        return f"{self.store.root}/{self.folder}/{path}"

    def _digests(self, paths: Iterable[str]) -> dict[str, str]:
        wanted, place = list(paths), self.store.at(self.folder)
        try:
            return digest_files(place, wanted)
        except FileNotFoundError:
            missing = next((path for path in wanted if not place.exists(path)), wanted[0])
        raise _unsound(self.store, f"{self.folder}/{missing}")

    def query(self, sql: str, kinds: Collection[str] = ("trials", "epochs")) -> pa.Table:
        """Return the result of an SQL query on the table, which is called ``ledger``.

        Columns with a dot in their names need double quotes.

        Args:
            sql: The query.
            kinds: Which rows it reads.

        Raises:
            StoreError: if the table cannot be read; one line that names the file.
        """
        return self._blaming(lambda: self.stream(sql, kinds).read_all())

    def stream(self, sql: str, kinds: Collection[str] = ("trials", "epochs")) -> pa.RecordBatchReader:
        """Return the same, batch by batch."""
        self.check_parts(kinds)
        with told(self.store, folder=self.folder):
            asked = QueryBuilder().register("ledger", self.table).execute(sql)
            # Not by pa.table, which imports pandas, as long as all the rest takes.
            rows = pa.RecordBatchReader.from_stream(asked)
        return rows.cast(plain(rows.schema))

    def _blaming(self, read: Callable[[], _T]) -> _T:
        """Return what a function reads; if it fails without saying at which part, say so."""
        try:
            with told(self.store, folder=self.folder):
                return read()
        except StoreError as error:
            if _PART.search(str(error)):
                raise
            unsound = next(
                (path for path in self.parts if not is_part(self.store, f"{self.folder}/{path}")), ""
            )
            raise (_unsound(self.store, f"{self.folder}/{unsound}") if unsound else error) from error


def _kind(path: str) -> str:
    return path.partition("/")[0].removeprefix("kind=")


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which every text is of the usual type."""
    kinds = (
        (field, pa.types.is_string_view(field.type) or pa.types.is_large_string(field.type))
        for field in schema
    )
    return pa.schema([field.with_type(pa.string()) if is_text else field for field, is_text in kinds])


def _open(store: Store, folder: str, sums: Checksums | None, version: int | None = None) -> DeltaTable:
    uri, options = address(store, folder)
    try:
        with told(store, folder=folder):
            return DeltaTable(uri, version, options)
    except StoreError as error:
        raise damaged_log(store, folder, sums) or error from error


def damaged_log(store: Store, folder: str, sums: Checksums | None) -> DamagedError | None:
    """Return the error for the first file of a log that is damaged or missing; None if all are sound.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
        sums: The table's checksums, if it has any; without them, a file is sound that can be read.
    """
    names = [f"{LOG}/{name}" for name in store.names(f"{folder}/{LOG}", ".json")]
    known = sums.log if sums else {}
    for name in sorted({*names, *known}):
        if name not in names and name.endswith(".json"):
            return _missing(store, f"{folder}/{name}")
        if not _is_sound(store, f"{folder}/{name}", known.get(name)):
            return damaged(store, f"{folder}/{name}", _remedy(store))
    versions = sorted(version for name in names if (version := version_of(name)) >= 0)
    low, high = next((pair for pair in pairwise(versions) if pair[1] != pair[0] + 1), (0, 0))
    if (
        sums and low >= sums.version and high
    ):  # a file of something else, for no process left more than a commit
        return damaged(store, f"{folder}/{log_name(high)}", _remedy(store))
    return _missing(store, f"{folder}/{log_name(low + 1)}") if high else None


def _is_sound(store: Store, name: str, digest: str | None) -> bool:
    try:
        return bool(log_lines(store.read(name))) if digest is None else store.digest(name) == digest
    except FileNotFoundError:
        return False


def log_lines(content: bytes) -> list[dict[str, Any]]:
    """Return the actions of a log file; empty if it is damaged, as there is no commit without actions."""
    try:
        found = [json.loads(line) for line in content.splitlines()]
    except (ValueError, RecursionError):
        return []
    return found if all(isinstance(action, dict) for action in found) else []


def follows(content: bytes, version: int) -> bool:
    """Return whether a commit was made after a version.

    A copy of another commit under this number was not, and neither was a file of something else.

    Args:
        content: The commit's log file.
        version: The version whose checksums were the newest then, or an earlier one.
    """
    infos = [action["commitInfo"] for action in log_lines(content) if "commitInfo" in action]
    after = infos[0].get(AFTER) if infos and isinstance(infos[0], dict) else None
    return isinstance(after, str) and after.isdecimal() and int(after) >= version


def is_part(store: Store, name: str) -> bool:
    """Return whether a file can be read as Parquet, completely."""
    try:
        pq.ParquetFile(io.BytesIO(store.read(name))).read()
    except (pa.ArrowException, OSError):
        return False
    return True
