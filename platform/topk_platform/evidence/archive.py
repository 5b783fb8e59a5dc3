"""Reading zip and Parquet files from anybody: they are checked before they are unpacked."""

from __future__ import annotations

import re
import stat
import zipfile
from collections import Counter
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.elsewhere import check_size, most_bytes
from topk_platform.specs.checks import first_few

__all__ = ["MOST_MEMBERS", "members", "table_of"]

MOST_MEMBERS = 200_000
"""How many files an archive may have; a bundle has one for each confirmed run, and some more."""

_MOST_COLUMNS = 10_000
_RATIO = 100  # a bundle shrinks at most to a tenth, because its Parquet files are compressed already
_SMALL = 64 * 2**20  # smaller contents may have any ratio
# Other methods unpack a whole member before its size is known.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NAME = re.compile(r"(?:[\w+-][\w.+-]*/)*[\w+-][\w.+-]*", re.ASCII)
_ENCRYPTED = 0x1
_COLUMN = re.compile(r"[\w.+-]+", re.ASCII)
_NUMBER = 8  # bytes


def members(file: str | Path) -> dict[str, bytes]:
    """Return the files in a zip by name.

    All entries of the zip's directory are checked before anything is unpacked. A member is unpacked only up to the size
    in its entry.

    Args:
        file: The zip.

    Raises:
        ValueError: if it has too many or too large members, or names, links or methods that no bundle has.
        OSError, zipfile.BadZipFile, EOFError: if it is damaged or not a zip.
    """
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_MEMBERS:
            raise ValueError(f"it has {len(entries)} files, more than {MOST_MEMBERS}")
        for one in entries:
            _check_member(one)
        name, times = max(
            Counter(one.filename for one in entries).items(), key=itemgetter(1), default=("", 0)
        )
        if times > 1:
            raise ValueError(f"it has {name!r} twice")
        size, packed = sum(one.file_size for one in entries), Path(file).stat().st_size
        check_size("its content", size, most_bytes())
        if size > _SMALL + _RATIO * packed:
            raise ValueError(
                f"its content is {size // packed} times as large as the file; at most {_RATIO} times is allowed"
            )
        return {one.filename: _content(archive, one) for one in entries}


def _check_member(one: zipfile.ZipInfo) -> None:
    name = one.orig_filename
    if not _NAME.fullmatch(name):
        raise ValueError(f"it has a file with a name that no bundle has: {name!r}")
    if one.flag_bits & _ENCRYPTED:
        raise ValueError(f"{name!r} is encrypted")
    if one.compress_type not in _METHODS:
        raise ValueError(f"{name!r} is compressed by method {one.compress_type}, not by deflate")
    if stat.S_ISLNK(one.external_attr >> 16):
        raise ValueError(f"{name!r} is a link")


def _content(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> bytes:
    with archive.open(one) as member:
        content = member.read(one.file_size)  # unpacks no more than the entry says, even if there is more
    if len(content) != one.file_size:
        raise ValueError(f"{one.filename!r} has {len(content)} bytes, not {one.file_size}")
    return content


def table_of(content: bytes, what: str) -> pa.Table:
    """Return the table in a Parquet file.

    Its numbers of rows and columns are checked first. Texts are read as a dictionary, which is as small as in the file,
    so that their size is known before they are expanded.

    Args:
        content: The file.
        what: The file's name, for messages.

    Raises:
        ValueError: if it takes too much memory, has too many columns or two of the same name, or has a column of other
            types than numbers, times and texts.
        pyarrow.ArrowException, OSError: if it is damaged or not a Parquet file.
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
        raise ValueError(f"{what} has columns that no bundle has: {first_few([repr(n) for n in strange])}")
    if len(set(schema.names)) != len(schema.names):
        raise ValueError(f"{what} has a column twice")


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return bool(pa.types.is_string(kind.value_type))
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_boolean)
    return any(check(kind) for check in checks) or bool(pa.types.is_null(kind))


def _size(column: pa.ChunkedArray) -> int:
    """Return the bytes that a column takes after its texts are expanded."""
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
