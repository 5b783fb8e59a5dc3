"""The rank of the true class for every test image, per confirmed run; every k, group and comparison follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from topk_platform.records.per_image import found, written
from topk_platform.records.store import Store
from topk_platform.specs import Trial

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Ranks", "ranks_name", "read_all_ranks", "read_ranks", "save_ranks"]

_COLUMNS = ("greater", "tied", "label", "group")
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
        cluster: The group of each test image, such as its typeface or patient; None where every image stands alone.
        clusters: What the groups are called, in the plural, such as ``"typefaces"``.
    """

    greater: npt.NDArray[np.int64]
    tied: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    images: str
    cluster: npt.NDArray[np.int64] | None = None
    clusters: str = ""


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
    columns = dict(zip(_COLUMNS, ranks, strict=True))
    store.write(ranks_name(trial.key), written(columns, trial, images))


def read_ranks(store: Store, key: str) -> Ranks | None:
    """Return a trial's ranks, None where none were kept.

    Args:
        store: The study's folder.
        key: The trial's key.
    """
    try:
        columns, images = found(store.read(ranks_name(key)))
    except FileNotFoundError:
        return None
    greater, tied, label, group = (columns[name] for name in _COLUMNS)
    return Ranks(greater, tied, label, group, images)


def read_all_ranks(store: Store, keys: Iterable[str]) -> dict[str, Ranks]:
    """Return the ranks of the trials that have any, by key; reads many files at a time."""
    wanted = list(keys)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read = pool.map(lambda key: read_ranks(store, key), wanted)
        return {key: ranks for key, ranks in zip(wanted, read, strict=True) if ranks is not None}
