"""The K guesses for every test image, per confirmed run: which classes are confused with which."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from topk_platform.records.per_image import IMAGES, found, written
from topk_platform.records.store import Store
from topk_platform.specs import Trial

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Guesses", "guesses_name", "read_guesses", "save_guesses"]


class Guesses(NamedTuple):
    """A run's K guesses for its test images, in the split's order.

    Args:
        classes: The arm's K classes of each image, best first, ``(N, K)``; ties in any order.
        images: The split's fingerprint, as of :class:`~topk_platform.records.Ranks`, which has the true classes.
    """

    classes: npt.NDArray[np.int64]
    images: str


def guesses_name(key: str) -> str:
    """Return the name, inside a study's folder, of a trial's guesses."""
    return f"guesses/{key}.parquet"


def save_guesses(store: Store, trial: Trial, guesses: Tensor, images: str) -> None:
    """Write a trial's guesses: two bytes each, four where there are more than 65,536 classes; compressed.

    Args:
        store: The study's folder.
        trial: The confirmed trial.
        guesses: ``(N, K)``, best first.
        images: The test split's fingerprint.
    """
    columns = {f"guess{place}": values for place, values in enumerate(guesses.T, 1)}
    store.write(guesses_name(trial.key), written(columns, trial, images))


def read_guesses(store: Store, key: str) -> Guesses | None:
    """Return a trial's guesses, None where none were kept.

    Args:
        store: The study's folder.
        key: The trial's key.
    """
    try:
        columns, told = found(store.read(guesses_name(key)))
    except FileNotFoundError:
        return None
    return Guesses(np.stack(list(columns.values()), 1), told[IMAGES])
