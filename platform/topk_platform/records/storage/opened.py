"""A study's table, opened and checked: the log when it is opened, and each part before it is read."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from topk_platform.errors import StoreError, reason
from topk_platform.records.storage.checked_json import FOLDER, DamagedError, Mark, damaged
from topk_platform.records.storage.checksums import (
    LOG,
    Checksums,
    damaged_logs,
    digest_files,
    live_parts,
    newest,
)
from topk_platform.records.storage.store import Store

__all__ = ["Opened", "address", "check_parquet", "exists", "kind_of", "one_line_errors", "plain"]

_FAILURES = (DeltaError, OSError, pa.ArrowException, UnicodeDecodeError)  # the last is of a damaged footer
_PANIC = "PanicException"  # an internal error of the library: not an Exception, and without a public name
_PATIENCE = {"max_retries": "4", "retry_timeout": "20s"}
_SOUND: set[tuple[str, str, str]] = set()  # parts that this process has checked: folder, path and checksum


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
        raise damaged(store, f"{folder}/{LOG}", "missing")
    return False


def address(store: Store, folder: str) -> tuple[str, dict[str, str] | None]:
    """Return the address of a table for Delta Lake, and the object store's options; None for a local folder."""
    files = store.at(folder)
    if files.local is not None:
        return files.root, None
    options = {f"aws_{name}": value for name, value in files.options.items()}
    return files.root, {**_PATIENCE, **options, "allow_http": str(files.is_plain).lower()}


@contextmanager
def one_line_errors(store: Store, use: str = "read") -> Iterator[None]:
    """Turn errors of Delta Lake in the block into a one-line ``StoreError``.

    Args:
        store: The study's folder.
        use: What happens to the store in the block, ``"read"`` or ``"written"``.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, _FAILURES) and type(error).__name__ != _PANIC:
            raise
        why = reason(RuntimeError(str(error)))
        raise StoreError(f"store {store.uri!r} cannot be {use}: {why}") from error


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
        while True:
            sums = newest(store, folder)  # read before the table, which may be written meanwhile
            if sums is None and mark and mark.checksums:
                raise damaged(store, f"{folder}/_checksums", "missing")
            try:
                return cls.checked(store, folder, sums)
            except FileNotFoundError:  # the writer has deleted an old file of the log meanwhile
                continue
            except DamagedError:
                if newest(store, folder) == sums:  # else the writer has replaced files of the log meanwhile
                    raise

    @classmethod
    def checked(cls, store: Store, folder: str, sums: Checksums | None) -> Opened:
        """Return a table whose log agrees with its checksums.

        Raises:
            StoreError: if they disagree, or the table cannot be read.
        """
        if error := next(damaged_logs(store, folder, sums), None):
            raise error
        uri, options = address(store, folder)
        with one_line_errors(store):
            return cls(store, folder, DeltaTable(uri, storage_options=options), sums)

    @cached_property
    def parts(self) -> set[str]:
        """The paths of the table's parts in its folder."""
        return live_parts(self.table)

    def check_parts(self, kinds: Collection[str] = ("trials", "epochs"), *, again: bool = False) -> None:
        """Compare parts with their checksums, each part once per process.

        Args:
            kinds: The kinds of rows that are about to be read.
            again: Whether to compare also the parts that this process has already compared.

        Raises:
            StoreError: if a part is damaged or missing; the message has its name.
        """
        known, files = (self.sums.parts if self.sums else {}), self.store.at(self.folder)
        paths = [path for path in self.parts & known.keys() if kind_of(path) in kinds]
        paths = [path for path in paths if again or (files.root, path, known[path]) not in _SOUND]
        try:
            digests = digest_files(files, paths)
        except FileNotFoundError:
            gone = next((path for path in paths if not files.exists(path)), paths[0])
            raise damaged(self.store, f"{self.folder}/{gone}", "missing") from None
        for path, digest in digests.items():
            if digest != known[path]:
                raise damaged(self.store, f"{self.folder}/{path}")
            _SOUND.add((files.root, path, digest))

    def query(self, sql: str, kinds: Collection[str] = ("trials", "epochs")) -> pa.Table:
        """Return the result of an SQL query on the table, whose name in SQL is ``ledger``.

        Columns with a dot in their names need double quotes.

        Raises:
            StoreError: if the table cannot be read; the message is one line that names the file.
        """
        with self.reading(kinds):
            return self.stream(sql, kinds).read_all()

    def stream(self, sql: str, kinds: Collection[str] = ("trials", "epochs")) -> pa.RecordBatchReader:
        """Return the result of a query batch by batch; call this and read it within :meth:`reading`."""
        self.check_parts(kinds)
        result = QueryBuilder().register("ledger", self.table).execute(sql)
        # Not by pa.table, which imports pandas and so doubles the time.
        rows = pa.RecordBatchReader.from_stream(result)
        return rows.cast(plain(rows.schema))

    @contextmanager
    def reading(self, kinds: Collection[str] = ("trials", "epochs")) -> Iterator[None]:
        """Turn errors of Delta Lake in the block into one line, which names the damaged part if there is one.

        Args:
            kinds: The kinds of rows that are read in the block.
        """
        try:
            with one_line_errors(self.store):
                yield
        except StoreError:
            self.check_parts(kinds, again=True)  # a part may have been damaged since it was checked
            self.check_without_checksums(kinds)
            raise

    def check_without_checksums(self, kinds: Collection[str] = ("trials", "epochs")) -> None:
        """Read the parts that have no checksums from beginning to end: those of a killed driver's last commit.

        Args:
            kinds: The kinds of rows.

        Raises:
            StoreError: if a part is damaged or missing; the message has its name.
        """
        known = self.sums.parts if self.sums else {}
        for path in sorted(path for path in self.parts - known.keys() if kind_of(path) in kinds):
            name = f"{self.folder}/{path}"
            try:
                check_parquet(self.store.read(name))
            except FileNotFoundError:
                raise damaged(self.store, name, "missing") from None
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise damaged(self.store, name) from error


def kind_of(path: str) -> str:
    """Return the kind of a part's rows, by the part's path in the table's folder."""
    return posixpath.dirname(path).removeprefix("kind=")


def check_parquet(content: bytes) -> None:
    """Read a Parquet file from beginning to end.

    Raises:
        ArrowException, OSError, UnicodeDecodeError: if it is damaged.
    """
    for _ in pq.ParquetFile(io.BytesIO(content)).iter_batches():
        pass


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which all texts have the plain string type."""
    kinds = (
        (field, pa.types.is_string_view(field.type) or pa.types.is_large_string(field.type))
        for field in schema
    )
    return pa.schema([field.with_type(pa.string()) if is_text else field for field, is_text in kinds])
