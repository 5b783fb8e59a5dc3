"""Results by class: how well an arm's confirmed networks know each class, and with which class they confuse it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from topk_platform.records.per_image import Guesses, Ranks, read_guesses
from topk_platform.records.run_notes import read_data
from topk_platform.records.storage.store import Store
from topk_platform.results.contrasts import credit
from topk_platform.results.runs import ReadRanks
from topk_platform.results.table import Table, row_and_column
from topk_platform.specs import Arm

__all__ = ["ClassResult", "class_results"]

_Numbers = npt.NDArray[np.float64]
_Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassResult:
    """The results of an arm's confirmed networks on the test images of one class.

    Args:
        row: The row of the arm in the table.
        column: Its column.
        label: The number of the class.
        name: Its name; the number as a text if the dataset has no names.
        images: The number of its test images; if every seed draws its own, the rounded mean.
        seeds: The number of seeds that the shares are means over.
        k: The arm's K.
        top1: The share of the images whose first guess is right.
        topk: The share of the images with the class among the K guesses.
        confused_with: The number of the other class that is most often the first guess; None if there is none.
        confused_name: Its name; None if there is none.
        confused_share: The share of the images for which it is the first guess, over the seeds whose guesses are kept.
    """

    row: str
    column: str
    label: int
    name: str
    images: int
    seeds: int
    k: int
    top1: float
    topk: float
    confused_with: int | None = None
    confused_name: str | None = None
    confused_share: float = 0.0


def class_results(table: Table, store: Store, ranks: ReadRanks) -> Iterable[ClassResult]:
    """Yield the results of every class of every arm that a table shows, in the table's order.

    The results come from the ranks and guesses that confirmations keep. Arms without kept ranks are left out. Without
    kept guesses, ``confused_with`` is None.

    Args:
        table: The table.
        store: The study's folder.
        ranks: Reads the ranks of confirmations.

    Raises:
        DamagedError: if a file is not the one that was recorded.
        StoreError: if a file cannot be read.
    """
    notes = read_data(store)
    arms = {row_and_column(table.study, table.across, arm): arm for arm in table.study.arms}
    for key, rows in table.confirmations.items():
        completed = [row for row in rows.values() if row["status"] == "completed"]
        kept = ranks(completed)
        runs = [(kept[row["key"]], read_guesses(store, row)) for row in completed if row["key"] in kept]
        if runs:
            note = notes.get(arms[key].regime.name)
            yield from _of_arm(key, arms[key], runs, () if note is None else note.names)


def _of_arm(
    key: tuple[str, str], arm: Arm, runs: Sequence[tuple[Ranks, Guesses | None]], names: Sequence[str]
) -> Iterable[ClassResult]:
    ranks = [run for run, _ in runs]
    images = np.bincount(np.concatenate([run.label for run in ranks]))  # of all runs
    top1, topk = (_right(ranks, k, len(images)) / np.maximum(images, 1) for k in (1, arm.k))
    confused = _confused([(run.label, guesses.classes) for run, guesses in runs if guesses is not None])
    for label in np.flatnonzero(images).tolist():
        other, share = confused.get(label, (None, 0.0))
        yield ClassResult(
            *key,
            label=label,
            name=_name(names, label),
            images=round(int(images[label]) / len(runs)),
            seeds=len(runs),
            k=arm.k,
            top1=float(top1[label]),
            topk=float(topk[label]),
            confused_with=other,
            confused_name=None if other is None else _name(names, other),
            confused_share=share,
        )


def _name(names: Sequence[str], label: int) -> str:
    return names[label] if label < len(names) else str(label)


def _right(runs: Sequence[Ranks], k: int, classes: int) -> _Numbers:
    """Return how many images of each class have it among the k guesses, in all runs: ``(L,)``."""
    return np.asarray(sum(np.bincount(run.label, credit(run, k), classes) for run in runs), float)


def _confused(runs: Sequence[tuple[_Labels, _Labels]]) -> Mapping[int, tuple[int, float]]:
    """Return, by class, the most frequent wrong first guess, of ties the lowest, and its share of the images."""
    if not runs:
        return {}
    label, first = (np.concatenate(parts) for parts in zip(*((y, g[:, 0]) for y, g in runs), strict=True))
    images = np.bincount(label)
    pairs, counts = np.unique(np.stack([label, first], 1)[label != first], axis=0, return_counts=True)
    result: dict[int, tuple[int, float]] = {}
    for (true, guess), share in zip(pairs.tolist(), (counts / images[pairs[:, 0]]).tolist(), strict=True):
        if share > result.get(true, (0, 0.0))[1]:
            result[true] = guess, share
    return result
