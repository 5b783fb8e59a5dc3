"""The rank of the true class of every test image, per confirmed run: every k, group and comparison comes from it."""

from __future__ import annotations

import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from topk_platform.records.store import Store
from topk_platform.specs import Trial

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Ranks",
    "class_column",
    "class_numbers",
    "ranks_name",
    "read_all_ranks",
    "read_ranks",
    "save_ranks",
]

_COLUMNS = ("greater", "tied", "label", "group")
_IMAGES = b"images"
_AT_ONCE = 16  # an object store answers in some 30 ms, however many ask


class Ranks(NamedTuple):
    """What is kept of a run's test images, in the split's order.

    With g classes above the true one and t others equal to it, an image's top-k accuracy under random tie-breaking
    is ``clip((k - g) / (t + 1), 0, 1)``.

    Args:
        greater: How many classes score above the true one.
        tied: How many others equal it.
        label: The true class.
        group: 1, 2 or 3 where that class is many-, medium- or few-shot; 0 where there are no such groups.
        images: The split's fingerprint: runs that share it were tested on the same images.
    """

    greater: npt.NDArray[np.int64]
    tied: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    images: str


def ranks_name(key: str) -> str:
    """Return the name, inside a study's folder, of a trial's ranks."""
    return f"ranks/{key}.parquet"


def save_ranks(store: Store, trial: Trial, ranks: Tensor, images: str) -> None:
    """Write a trial's ranks: four bytes an image, a few more where there are more than 65,536 classes.

    Args:
        store: The study's folder.
        trial: The confirmed trial.
        ranks: ``(4, N)``: the columns of :class:`Ranks` in their order.
        images: The test split's fingerprint.
    """
    columns = {name: class_column(values) for name, values in zip(_COLUMNS, ranks, strict=True)}
    table = pa.table(columns).replace_schema_metadata({"trial": trial.to_json(), _IMAGES: images})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    store.write(ranks_name(trial.key), buffer.getvalue())


def class_column(values: Tensor) -> pa.Array:
    """Return whole numbers from 0 as a column: two bytes each, four where one is above 65,535."""
    found = values.numpy()
    return pa.array(found, pa.uint16() if found.max(initial=0) < 2**16 else pa.uint32())


def read_ranks(store: Store, key: str) -> Ranks | None:
    """Return a trial's ranks, None where none were kept.

    Args:
        store: The study's folder.
        key: The trial's.
    """
    try:
        table = pq.ParquetFile(io.BytesIO(store.read(ranks_name(key)))).read()
    except FileNotFoundError:
        return None
    greater, tied, label, group = (class_numbers(table[name]) for name in _COLUMNS)
    return Ranks(greater, tied, label, group, table.schema.metadata[_IMAGES].decode())


def read_all_ranks(store: Store, keys: Iterable[str]) -> dict[str, Ranks]:
    """Return the ranks of the trials that have any, by key; many files are read at a time."""
    wanted = list(keys)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda key: read_ranks(store, key), wanted)
        return {key: ranks for key, ranks in zip(wanted, found, strict=True) if ranks is not None}


def class_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the numbers of such a column, ``(N,)``."""
    # Not by to_numpy, which imports pandas.
    array = column.combine_chunks()
    kind = np.uint16 if array.type == pa.uint16() else np.uint32
    held = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * np.dtype(kind).itemsize)
    return held.astype(np.int64)
