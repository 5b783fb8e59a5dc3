"""The files in a zip, and the table in a Parquet file, of somebody else: looked at before they are unpacked."""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.elsewhere import check_size, most_bytes
from topk_platform.specs.checks import first_few

__all__ = ["MOST_MEMBERS", "members", "table_of"]

MOST_MEMBERS = 200_000
"""How many files an archive may have: one for each confirmed run, and some more."""

_MOST_COLUMNS = 10_000
_RATIO = 100  # ours shrink to a tenth at most: Parquet and its like are compressed already
_SMALL = 64 * 2**20  # bytes below which any ratio will do
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others unpack all of a member before we can count it
_NAME = re.compile(r"(?:[\w+-][\w.+-]*/)*[\w+-][\w.+-]*", re.ASCII)
_ENCRYPTED = 0x1
_COLUMN = re.compile(r"[\w.+-]+", re.ASCII)
_NUMBER = 8  # bytes


def members(file: str | Path) -> dict[str, bytes]:
    """Return the files in a zip by name.

    Everything that the zip says of itself is checked before anything is unpacked, and a member that says too little
    of its size is not unpacked further than it says.

    Args:
        file: The zip.

    Raises:
        ValueError: if it has too many members, or too large ones, or names, links or methods that ours have not.
        OSError, zipfile.BadZipFile, EOFError: if it is no zip, or is damaged.
    """
    with zipfile.ZipFile(file) as archive:
        found = archive.infolist()
        if len(found) > MOST_MEMBERS:
            raise ValueError(f"it has {len(found)} files, more than {MOST_MEMBERS}")
        for one in found:
            _check_member(one)
        _check_names([one.filename for one in found])
        size, packed = sum(one.file_size for one in found), Path(file).stat().st_size
        check_size("its content", size, most_bytes())
        if size > _SMALL + _RATIO * packed:
            raise ValueError(
                f"its content is {size // packed} times as large as itself, and may be {_RATIO} times"
            )
        return {one.filename: _content(archive, one) for one in found}


def _check_names(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"it has {name!r} twice")
        seen.add(name)


def _check_member(one: zipfile.ZipInfo) -> None:
    name = one.orig_filename
    if not _NAME.fullmatch(name):
        raise ValueError(f"it names files outside of itself, or as no bundle does: {name!r}")
    if one.flag_bits & _ENCRYPTED:
        raise ValueError(f"{name!r} is encrypted")
    if one.compress_type not in _METHODS:
        raise ValueError(f"{name!r} is compressed by method {one.compress_type}, not by deflate")
    if stat.S_ISLNK(one.external_attr >> 16):
        raise ValueError(f"{name!r} is a link")


def _content(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> bytes:
    with archive.open(one) as member:
        found = member.read(one.file_size)  # no more is unpacked, whatever there is
    if len(found) != one.file_size:
        raise ValueError(f"{one.filename!r} has {len(found)} bytes, not {one.file_size}")
    return found


def table_of(content: bytes, what: str) -> pa.Table:
    """Return the table in a Parquet file.

    Its numbers of rows and columns are looked at first. Texts are read as a dictionary, which is as small as they
    are in the file, and their size is known before they are written out.

    Args:
        content: The file.
        what: Its name, for messages.

    Raises:
        ValueError: if it takes too much memory, or has a column that is neither numbers, times nor texts.
        pyarrow.ArrowException, OSError: if it is no such file, or is damaged.
    """
    facts = pq.read_metadata(pa.BufferReader(content))
    if facts.num_columns > _MOST_COLUMNS:
        raise ValueError(f"{what} has {facts.num_columns} columns, more than {_MOST_COLUMNS}")
    groups = (facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))
    expected = max(facts.num_rows * facts.num_columns * _NUMBER, sum(groups))
    check_size(what, expected, most_bytes())
    texts = [facts.schema.column(n).path for n in range(facts.num_columns)]
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts)
    _check_columns(file.schema_arrow, what)
    taken, columns = 0, []
    for field in file.schema_arrow:
        column = file.read(columns=[field.name], use_threads=False).column(0)
        taken += _size(column)
        check_size(what, taken, most_bytes())
        columns.append(column.cast(pa.string()) if pa.types.is_dictionary(field.type) else column)
    return pa.table(columns, _plain(file.schema_arrow))


def _check_columns(schema: pa.Schema, what: str) -> None:
    strange = [
        field.name for field in schema if not _COLUMN.fullmatch(field.name) or not _is_plain(field.type)
    ]
    if strange:
        raise ValueError(f"{what} has columns that no such file has: {first_few([repr(n) for n in strange])}")
    if len(set(schema.names)) != len(schema.names):
        raise ValueError(f"{what} has a column twice")


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return bool(pa.types.is_string(kind.value_type))
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_boolean)
    return any(check(kind) for check in checks) or bool(pa.types.is_null(kind))


def _size(column: pa.ChunkedArray) -> int:
    """Return the bytes that a column takes once its texts are written out."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    size = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
        size += _NUMBER * len(chunk) + (pc.sum(lengths.cast(pa.int64())).as_py() or 0)
    return size


def _plain(schema: pa.Schema) -> pa.Schema:
    fields = [
        field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in schema
    ]
    return pa.schema(fields, schema.metadata)
