"""A study's table, opened and checked: the log when it is opened, and each part before it is read."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from topk_platform.errors import StoreError, reason
from topk_platform.records.storage.checked_json import FOLDER, Mark, damaged
from topk_platform.records.storage.checksums import (
    LOG,
    Checksums,
    damaged_logs,
    digest_files,
    follows,
    live_parts,
    log_name,
    missing,
    newest,
    remedy,
    unsound,
    view_of,
)
from topk_platform.records.storage.store import Store

__all__ = ["Opened", "address", "exists", "is_part", "one_line_errors", "plain"]

_FAILURES = (DeltaError, OSError, pa.ArrowException)
_PANIC = "PanicException"  # an internal error of the library: not an Exception, and without a public name
_PART = re.compile(r"kind=\w+/[\w.-]+\.parquet")
# Errors of the system except "no such file", and of a server except "not found": they say nothing about the file.
_UNREACHABLE = re.compile(r"\(os error (?!2\))|Error performing (?!.*\b404\b)")
_PATIENCE = {"max_retries": "4", "retry_timeout": "20s"}
_SOUND: set[tuple[str, str]] = set()  # parts that this process has checked, as address and checksum
_T = TypeVar("_T")


def exists(store: Store) -> bool:
    """Return whether a study's folder holds a table.

    Raises:
        StoreError: if the table is missing although its mark says that it has checksums.
    """
    mark = Mark.read(store)
    folder = mark.table if mark else FOLDER
    if store.exists(f"{folder}/{LOG}"):
        return True
    if mark and mark.checksums:
        raise missing(store, f"{folder}/{LOG}")
    return False


def address(store: Store, folder: str) -> tuple[str, dict[str, str] | None]:
    """Return the address of a table for Delta Lake, and the object store's options; None for a local folder."""
    files = store.at(folder)
    if files.local is not None:
        return files.root, None
    options = {f"aws_{name}": value for name, value in files.options.items()}
    return files.root, {**_PATIENCE, **options, "allow_http": str(files.is_plain).lower()}


@contextmanager
def one_line_errors(store: Store, use: str = "read", folder: str = FOLDER) -> Iterator[None]:
    """Turn errors of Delta Lake in the block into a one-line ``StoreError``, which names a damaged file.

    Args:
        store: The study's folder.
        use: What happens to the store in the block, ``"read"`` or ``"written"``. If writing fails, the file that the
            error names is the new one and not damaged.
        folder: The table's folder in the study's folder.
    """
    try:
        yield
    except _FAILURES as error:
        raise _error(store, use, folder, str(error)) from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise _error(store, use, folder, str(error)) from error


def _error(store: Store, use: str, folder: str, text: str) -> StoreError:
    part = _PART.search(text) if use == "read" and not _UNREACHABLE.search(text) else None
    if part:
        return unsound(store, f"{folder}/{part.group()}")
    return StoreError(f"store {store.uri!r} cannot be {use}: {reason(RuntimeError(text))}")


@dataclass(frozen=True)
class Opened:
    """A study's table as it is now.

    Args:
        store: The study's folder.
        folder: The table's folder in it.
        table: The table.
        sums: Its newest checksums; None if there are none yet.
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
            StoreError: if a file of its log is damaged or missing (the message names it), or it cannot be read.
        """
        mark = Mark.read(store) if folder is None else None
        folder = folder or (mark.table if mark else FOLDER)
        sums = newest(store, folder)  # read before the table, which may be written meanwhile
        if sums is None and mark and mark.checksums:
            raise missing(store, f"{folder}/_checksums")
        return cls.checked(store, folder, sums)

    @classmethod
    def checked(cls, store: Store, folder: str, sums: Checksums | None) -> Opened:
        """Return a table whose log agrees with its checksums.

        Raises:
            StoreError: if they disagree, or the table cannot be read.
        """
        opened = cls(store, folder, _open(store, folder, sums), sums)
        opened._check_log()
        return opened

    def _check_log(self) -> None:
        """Compare the log with its checksums.

        Raises:
            StoreError: if they differ.
        """
        if self.sums is None:
            return
        version = self.table.version()
        if version < self.sums.version:
            raise missing(self.store, f"{self.folder}/{log_name(version + 1)}")
        table = self.table if version == self.sums.version else self._before()
        if view_of(table) != self.sums.view:
            whole = damaged(self.store, f"{self.folder}/{LOG}", remedy(self.store))
            raise next(damaged_logs(self.store, self.folder, self.sums), whole)

    def _before(self) -> DeltaTable:
        """Return the table as of its checksums, and check the later commits of a process that was killed."""
        assert self.sums is not None  # noqa: S101 - for the type checker
        for version in range(self.sums.version + 1, self.table.version() + 1):
            name = f"{self.folder}/{log_name(version)}"
            if not follows(self.store.read(name), self.sums.version):
                raise damaged(self.store, name, remedy(self.store))
        return _open(self.store, self.folder, self.sums, self.sums.version)

    @cached_property
    def parts(self) -> Mapping[str, int]:
        """The size in bytes of each part, by its path in the table's folder."""
        return live_parts(self.table)

    def check_parts(self, kinds: Collection[str] = ("trials", "epochs"), *, again: bool = False) -> None:
        """Compare parts with their checksums, each part once per process.

        Args:
            kinds: The kinds of rows that are about to be read.
            again: Whether to compare also the parts that this process has already compared.

        Raises:
            StoreError: if a part is damaged or missing; the message has its name.
        """
        known = self.sums.parts if self.sums else {}
        paths = [
            path
            for path in self.parts
            if path in known and path.partition("/")[0].removeprefix("kind=") in kinds
        ]
        paths = [path for path in paths if again or (self._at(path), known[path][1]) not in _SOUND]
        for path, digest in self._digests(paths).items():
            if digest != known[path][1]:
                raise unsound(self.store, f"{self.folder}/{path}")
            _SOUND.add((self._at(path), digest))

    def _at(self, path: str) -> str:
        return f"{self.store.root}/{self.folder}/{path}"

    def _digests(self, paths: Iterable[str]) -> dict[str, str]:
        paths, files = list(paths), self.store.at(self.folder)
        try:
            return digest_files(files, paths)
        except FileNotFoundError:
            gone = next((path for path in paths if not files.exists(path)), paths[0])
        raise unsound(self.store, f"{self.folder}/{gone}")

    def query(self, sql: str, kinds: Collection[str] = ("trials", "epochs")) -> pa.Table:
        """Return the result of an SQL query on the table, whose name in SQL is ``ledger``.

        Columns with a dot in their names need double quotes.

        Raises:
            StoreError: if the table cannot be read; the message is one line that names the file.
        """
        return self._blaming(lambda: self.stream(sql, kinds).read_all())

    def stream(self, sql: str, kinds: Collection[str] = ("trials", "epochs")) -> pa.RecordBatchReader:
        """Return the result of a query as :meth:`query` does, batch by batch."""
        self.check_parts(kinds)
        with one_line_errors(self.store, folder=self.folder):
            result = QueryBuilder().register("ledger", self.table).execute(sql)
            # Not by pa.table, which imports pandas and so doubles the time.
            rows = pa.RecordBatchReader.from_stream(result)
        return rows.cast(plain(rows.schema))

    def _blaming(self, read: Callable[[], _T]) -> _T:
        """Return the result of a function that reads. If its error names no part, look for the damaged part."""
        try:
            with one_line_errors(self.store, folder=self.folder):
                return read()
        except StoreError as error:
            if _PART.search(str(error)):
                raise
            broken = next(
                (path for path in self.parts if not is_part(self.store, f"{self.folder}/{path}")), ""
            )
            raise (unsound(self.store, f"{self.folder}/{broken}") if broken else error) from error


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which all texts have the plain string type."""
    kinds = (
        (field, pa.types.is_string_view(field.type) or pa.types.is_large_string(field.type))
        for field in schema
    )
    return pa.schema([field.with_type(pa.string()) if is_text else field for field, is_text in kinds])


def _open(store: Store, folder: str, sums: Checksums | None, version: int | None = None) -> DeltaTable:
    uri, options = address(store, folder)
    try:
        with one_line_errors(store, folder=folder):
            return DeltaTable(uri, version, options)
    except StoreError as error:
        raise next(damaged_logs(store, folder, sums), error) from error


def is_part(store: Store, name: str) -> bool:
    """Return whether a file can be read as Parquet, from beginning to end."""
    try:
        pq.ParquetFile(io.BytesIO(store.read(name))).read()
    except (pa.ArrowException, OSError):
        return False
    return True
