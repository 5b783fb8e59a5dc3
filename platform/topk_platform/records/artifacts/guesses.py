"""The K guesses of each confirmed run for every test image. They show which classes are confused."""

from __future__ import annotations

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

__all__ = ["Guesses", "read_guesses", "save_guesses"]


class Guesses(NamedTuple):
    """A run's K guesses for its test images, in the split's order.

    Args:
        classes: The arm's K classes of each image, best first, ``(N, K)``; ties in any order.
        images: The split's fingerprint, as in :class:`~topk_platform.records.Ranks`, which also has the true classes.
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

    Args:
        store: The study's folder.
        row: The trial's row of the ledger.

    Raises:
        DamagedError: if their bytes are not those that were recorded, or cannot be parsed.
        StoreError: if they cannot be read.
    """
    return read_parsed(store, "guesses", row, _parsed)


def _parsed(content: bytes) -> Guesses:
    columns, about = from_parquet(content)
    return Guesses(np.stack(list(columns.values()), 1), about[IMAGES])
