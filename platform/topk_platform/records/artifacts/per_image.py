"""The Parquet files of ranks and guesses: whole numbers for every test image of a run."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from topk_platform.specs import Trial

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["IMAGES", "from_parquet", "to_parquet"]

IMAGES = "images"
"""The name of the test split's fingerprint in a file's metadata."""


def to_parquet(
    columns: Mapping[str, Tensor], trial: Trial, images: str, about: Mapping[str, str] | None = None
) -> bytes:
    """Return a compressed Parquet file, with two bytes per number, or four in a column with a number above 65,535.

    Args:
        columns: Whole numbers of at least 0, ``(N,)`` each.
        trial: The trial.
        images: The test split's fingerprint.
        about: Further metadata. Empty texts are left out.
    """
    table = pa.table({name: _column(values) for name, values in columns.items()})
    more = {name: text for name, text in (about or {}).items() if text}
    table = table.replace_schema_metadata({"trial": trial.to_json(), IMAGES: images, **more})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def from_parquet(content: bytes) -> tuple[dict[str, npt.NDArray[np.int64]], dict[str, str]]:
    """Return the columns of a file, in their order, and its metadata, such as :data:`IMAGES`."""
    # Files are small and many are read at a time. Arrow's own threads would wake up for each column of each file, and a
    # Python file would be locked for each of its reads.
    table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    columns = {name: _numbers(table[name]) for name in table.column_names}
    return columns, {name.decode(): text.decode() for name, text in table.schema.metadata.items()}


def _column(values: Tensor) -> pa.Array:
    numbers = values.numpy()
    return pa.array(numbers, pa.uint16() if numbers.max(initial=0) < 2**16 else pa.uint32())


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    # to_numpy would import pandas.
    array = column.combine_chunks()
    kind = np.uint16 if array.type == pa.uint16() else np.uint32
    held = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * np.dtype(kind).itemsize)
    return held.astype(np.int64)
