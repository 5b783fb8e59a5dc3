"""The true class's rank on every test image, for each confirmed run.

The metrics for any k and any group of classes follow from the ranks, and so do the comparisons of runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from topk_platform.records.artifacts.files import read_parsed, write_artifact
from topk_platform.records.artifacts.per_image import IMAGES, from_parquet, to_parquet
from topk_platform.records.storage.store import Store
from topk_platform.records.table.rows import Row
from topk_platform.specs import Trial

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Ranks", "read_all_ranks", "read_ranks", "save_ranks"]

_COLUMNS = ("greater", "tied", "label", "group")
_CLUSTER, _CLUSTERS = "cluster", "clusters"
_AT_ONCE = 16  # an object store answers in about 30 ms, for any number of requests at a time


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
    more = {} if cluster is None else {_CLUSTER: _without_gaps(cluster)}
    content = to_parquet(columns | more, trial, images, {_CLUSTERS: clusters})
    return write_artifact(store, "ranks", trial.key, content)


def _without_gaps(cluster: Tensor) -> Tensor:
    numbers: Tensor = cluster.unique(return_inverse=True)[1]  # type: ignore[no-untyped-call]
    return numbers


def read_ranks(store: Store, row: Row) -> Ranks | None:
    """Return a trial's ranks; None if the store has none.

    Args:
        store: The study's folder.
        row: The trial's row of the ledger.

    Raises:
        DamagedError: if their bytes are not those that were recorded, or cannot be parsed.
        StoreError: if they cannot be read.
    """
    return read_parsed(store, "ranks", row, _parsed)


def _parsed(content: bytes) -> Ranks:
    columns, about = from_parquet(content)
    greater, tied, label, group = (columns[name] for name in _COLUMNS)
    return Ranks(greater, tied, label, group, about[IMAGES], columns.get(_CLUSTER), about.get(_CLUSTERS, ""))


def read_all_ranks(store: Store, rows: Iterable[Row]) -> dict[str, Ranks]:
    """Return the ranks of the trials that have any, by key. Many files are read at a time."""
    listed = list(rows)
    read = _readers().map(lambda row: read_ranks(store, row), listed)
    return {row["key"]: ranks for row, ranks in zip(listed, read, strict=True) if ranks is not None}


@cache
def _readers() -> ThreadPoolExecutor:
    """Return the threads that read ranks, made once: a table may read those of thousands of arms, arm by arm."""
    return ThreadPoolExecutor(_AT_ONCE, "ranks")
