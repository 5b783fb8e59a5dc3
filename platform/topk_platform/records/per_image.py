"""The ranks and the guesses of each confirmed run, for every test image, in Parquet files.

A rank is that of the true class: the metrics for any k and any group of classes follow from the ranks, and so do the
comparisons of runs. The K guesses show which classes are confused.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from topk_platform.records.files import read_parsed, write_artifact
from topk_platform.records.rows import Row
from topk_platform.records.storage.store import Store
from topk_platform.specs import GROUPS, Trial

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Guesses",
    "Ranks",
    "read_all_ranks",
    "read_guesses",
    "read_ranks",
    "save_guesses",
    "save_ranks",
    "to_parquet",
]

_IMAGES = "images"  # the test split's fingerprint in a file's metadata
_COLUMNS = ("greater", "tied", "label", "group")
_CLUSTER, _CLUSTERS = "cluster", "clusters"
_AT_ONCE = 16  # an object store answers in about 30 ms, for any number of requests at a time


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
    table = table.replace_schema_metadata({"trial": trial.to_json(), _IMAGES: images, **more})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _from_parquet(content: bytes) -> tuple[dict[str, npt.NDArray[np.int64]], dict[str, str]]:
    """Return the columns of a file, in their order, and its metadata, such as the test split's fingerprint."""
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


class Ranks(NamedTuple):
    """The true class's ranks on a run's test images, in the split's order.

    With g classes above the true one and t others equal to it, an image's top-k accuracy under random tie-breaking
    is ``clip((k - g) / (t + 1), 0, 1)``.

    Args:
        greater: How many classes score above the true class.
        tied: How many other classes have the true class's score.
        label: The true class.
        group: 1, 2 or 3 if the true class is many-, medium- or few-shot; 0 if there are no such groups.
        images: The split's fingerprint. Runs that share it were tested on the same images.
        cluster: The group of each image, such as its typeface or its patient, numbered from 0 without gaps; None if the
            dataset names no groups of images.
        clusters: The name of these groups in the plural, such as ``"typefaces"``; empty if there are none.
    """

    greater: npt.NDArray[np.int64]
    tied: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    images: str
    cluster: npt.NDArray[np.int64] | None = None
    clusters: str = ""

    def accuracy(self, metric: str) -> float | None:
        """Return an accuracy for any K, such as ``"top3"``, ``"macro_top10"`` or ``"few_top5"``.

        None if no test image is of the metric's group of classes.

        Example:
            >>> ranks = Ranks(*np.array([[0, 1, 2], [0, 0, 0], [0, 0, 1], [1, 1, 3]]), images="")
            >>> ranks.accuracy("top1"), ranks.accuracy("macro_top2"), ranks.accuracy("medium_top5")
            (0.3333333333333333, 0.5, None)
        """
        kind, _, k = metric.rpartition("top")
        credit = np.clip((int(k) - self.greater) / (self.tied + 1), 0, 1)
        if not kind:
            return float(credit.mean())
        counts = np.ones_like(self.group) if kind == "macro_" else self.group == 1 + GROUPS.index(kind[:-1])
        images = np.bincount(self.label, counts)
        there = images > 0
        means = np.bincount(self.label, credit * counts)[there] / images[there]
        return float(means.mean()) if len(means) else None


def save_ranks(
    store: Store,
    trial: Trial,
    ranks: Tensor,
    images: str,
    cluster: Tensor | None = None,
    clusters: str = "",
) -> str:
    """Write a trial's ranks: four bytes per image, and a few more with groups or with more than 65,536 classes.

    Args:
        store: The study's folder.
        trial: The confirmed trial.
        ranks: ``(4, N)``: the first four fields of :class:`Ranks` in their order.
        images: The test split's fingerprint.
        cluster: As in :class:`Ranks`, ``(N,)``, but the numbers may have gaps.
        clusters: As in :class:`Ranks`.

    Returns:
        The file's SHA-256.

    Raises:
        StoreError: if the store cannot be written.
    """
    columns = dict(zip(_COLUMNS, ranks, strict=True))
    if cluster is not None:
        columns[_CLUSTER] = cluster.unique(return_inverse=True)[1]  # type: ignore[no-untyped-call]
    content = to_parquet(columns, trial, images, {_CLUSTERS: clusters})
    return write_artifact(store, "ranks", trial.key, content)


def read_ranks(store: Store, row: Row) -> Ranks | None:
    """Return a trial's ranks; None if the store has none.

    Raises:
        DamagedError: if their bytes are not those that were recorded, or cannot be parsed.
        StoreError: if they cannot be read.
    """
    return read_parsed(store, "ranks", row, _ranks_of)


def _ranks_of(content: bytes) -> Ranks:
    columns, about = _from_parquet(content)
    greater, tied, label, group = (columns[name] for name in _COLUMNS)
    return Ranks(greater, tied, label, group, about[_IMAGES], columns.get(_CLUSTER), about.get(_CLUSTERS, ""))


def read_all_ranks(store: Store, rows: Iterable[Row]) -> dict[str, Ranks]:
    """Return the ranks of the trials that have any, by key. Many files are read at a time."""
    listed = list(rows)
    read = _readers().map(lambda row: read_ranks(store, row), listed)
    return {row["key"]: ranks for row, ranks in zip(listed, read, strict=True) if ranks is not None}


@cache
def _readers() -> ThreadPoolExecutor:
    """Return the threads that read ranks, made once: a table may read those of thousands of arms, arm by arm."""
    return ThreadPoolExecutor(_AT_ONCE, "ranks")


class Guesses(NamedTuple):
    """A run's K guesses for its test images, in the split's order.

    Args:
        classes: The arm's K classes of each image, best first, ``(N, K)``; ties in any order.
        images: The split's fingerprint, as in :class:`Ranks`, which also has the true classes.
    """

    classes: npt.NDArray[np.int64]
    images: str


def save_guesses(store: Store, trial: Trial, guesses: Tensor, images: str) -> str:
    """Write a trial's guesses, compressed, with two bytes each, or four if there are more than 65,536 classes.

    Args:
        store: The study's folder.
        trial: The confirmed trial.
        guesses: ``(N, K)``, best first.
        images: The test split's fingerprint.

    Returns:
        The file's SHA-256.

    Raises:
        StoreError: if the store cannot be written.
    """
    columns = {f"guess{number}": values for number, values in enumerate(guesses.T, 1)}
    return write_artifact(store, "guesses", trial.key, to_parquet(columns, trial, images))


def read_guesses(store: Store, row: Row) -> Guesses | None:
    """Return a trial's guesses; None if the store has none.

    Raises:
        DamagedError: if their bytes are not those that were recorded, or cannot be parsed.
        StoreError: if they cannot be read.
    """
    return read_parsed(store, "guesses", row, _guesses_of)


def _guesses_of(content: bytes) -> Guesses:
    columns, about = _from_parquet(content)
    return Guesses(np.stack(list(columns.values()), 1), about[_IMAGES])
