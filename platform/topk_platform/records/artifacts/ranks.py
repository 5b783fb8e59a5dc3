"""The rank of the true class for every test image, per confirmed run; every k, group and comparison follows from it."""

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
# Test splits of the package whose groups follow one another: what they are called, and images in each.
_KNOWN = {"10258b7b5c3a9b93fe0f": ("typefaces", 62)}  # letters
_AT_ONCE = 16  # an object store answers in some 30 ms, however many ask


class Ranks(NamedTuple):
    """The true class's ranks on a run's test images, in the split's order.

    With g classes above the true one and t others equal to it, an image's top-k accuracy under random tie-breaking
    is ``clip((k - g) / (t + 1), 0, 1)``.

    Args:
        greater: How many classes score above the true class.
        tied: How many other classes have the true class's score.
        label: The true class.
        group: 1, 2 or 3 where that class is many-, medium- or few-shot; 0 where there are no such groups.
        images: The split's fingerprint: runs that share it were tested on the same images.
        cluster: The group of each image, numbered from 0 without gaps, such as its typeface or its patient; None where
            the dataset names none.
        clusters: What these groups are called, in the plural, such as ``"typefaces"``; empty where there are none.
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
    """Write a trial's ranks: four bytes an image, a few more where there are more than 65,536 classes, or groups.

    Returns their file's SHA-256.

    Args:
        store: The study's folder.
        trial: The confirmed trial.
        ranks: ``(4, N)``: the columns of :class:`Ranks` in their order.
        images: The test split's fingerprint.
        cluster: As of :class:`Ranks`, ``(N,)``, but with gaps if need be.
        clusters: Likewise.
    """
    columns = dict(zip(_COLUMNS, ranks, strict=True))
    more = {} if cluster is None else {_CLUSTER: _without_gaps(cluster)}
    content = to_parquet(columns | more, trial, images, {_CLUSTERS: clusters})
    return write_artifact(store, "ranks", trial.key, content)


def _without_gaps(cluster: Tensor) -> Tensor:
    numbers: Tensor = cluster.unique(return_inverse=True)[1]  # type: ignore[no-untyped-call]
    return numbers


def read_ranks(store: Store, row: Row) -> Ranks | None:
    """Return a trial's ranks, None if there are none.

    Args:
        store: The study's folder.
        row: The trial's row of the ledger.

    Raises:
        DamagedError: if they are not what was recorded.
        StoreError: if they cannot be read.
    """
    return read_parsed(store, "ranks", row, _parsed)


def _parsed(content: bytes) -> Ranks:
    columns, about = from_parquet(content)
    greater, tied, label, group = (columns[name] for name in _COLUMNS)
    images, cluster, clusters = about[IMAGES], columns.get(_CLUSTER), about.get(_CLUSTERS, "")
    if cluster is None:
        cluster, clusters = _known(images, len(label))
    return Ranks(greater, tied, label, group, images, cluster, clusters)


def _known(images: str, count: int) -> tuple[npt.NDArray[np.int64] | None, str]:
    """Return the groups of test images whose ranks were kept before datasets named groups."""
    if images not in _KNOWN:
        return None, ""
    clusters, size = _KNOWN[images]
    return np.arange(count) // size, clusters


def read_all_ranks(store: Store, rows: Iterable[Row]) -> dict[str, Ranks]:
    """Return the ranks of the trials that have any, by key; reads many files at a time."""
    listed = list(rows)
    read = _readers().map(lambda row: read_ranks(store, row), listed)
    return {row["key"]: ranks for row, ranks in zip(listed, read, strict=True) if ranks is not None}


@cache
def _readers() -> ThreadPoolExecutor:
    """Return the threads that read ranks; a table asks for those of one arm after another, of thousands in all."""
    return ThreadPoolExecutor(_AT_ONCE, "ranks")
