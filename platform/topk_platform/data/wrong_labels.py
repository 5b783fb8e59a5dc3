"""Wrong labels from files, which are confusion matrices as CSV or labels of samples as ``.npz``."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from topk_platform.data.arrays import to_labels
from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.folders import arrays_in, rows_of_table
from topk_platform.errors import MissingDataError, UserError
from topk_platform.specs.checks import check, first_few

__all__ = [
    "confused_labels",
    "read_confusion",
    "read_labels",
    "sample_keys",
    "write_labels",
]

_ROW_SUM_ERROR = 1e-3  # the tolerance for shares rounded to four digits


def read_confusion(path: Path, classes: int, names: Sequence[str]) -> Tensor:
    """Return a confusion matrix from a CSV file, each row divided by its sum, float64 ``(classes, classes)``.

    A row belongs to a true class and a column to a label. The numbers are counts, or shares that sum to 1 in each row.
    If the file's first cell is not a number, the first line and the first column hold the classes' names, both in the
    same order. Any order is allowed. Otherwise rows and columns are in the order of the classes.

    Args:
        path: The file.
        classes: The number of classes.
        names: The dataset's class names; empty if it has none.

    Raises:
        MissingDataError: if there is no such file.
        UserError: if the matrix is not square, has another number of classes, has a negative or infinite entry, a row
            of zeros or a row of shares that do not sum to 1, or its names are not those of the dataset.
    """
    rows = [[cell.strip() for cell in row] for row in rows_of_table(path, "a confusion matrix")]
    check(bool(rows), f"{path} must hold a confusion matrix, got an empty file")
    header = rows[0] if not _is_number(rows[0][0]) else None
    if header is not None:
        rows = rows[1:]
        check([row[0] for row in rows] == header[1:], f"{path}: rows and columns must name the same classes")
        rows = [row[1:] for row in rows]
    check(
        len(rows) == classes and all(len(row) == classes for row in rows),
        f"{path} must hold a row and a column for each of the {classes} classes, got rows of "
        f"{first_few([str(len(row)) for row in rows])} numbers in {len(rows)} rows",
    )
    strange = [cell for row in rows for cell in row if not _is_number(cell)]
    check(not strange, f"{path} must hold numbers, got {first_few([repr(cell) for cell in strange])}")
    numbers = [[float(cell) for cell in row] for row in rows]
    matrix = _checked(path, torch.tensor(numbers, dtype=torch.float64))
    if header is not None:
        matrix = _in_class_order(path, matrix, header[1:], names)
    return matrix


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _checked(path: Path, matrix: Tensor) -> Tensor:
    odd = matrix[~(matrix.isfinite() & (matrix >= 0))].tolist()
    check(
        not odd,
        f"{path} must hold finite numbers of at least 0, got {first_few([str(entry) for entry in odd])}",
    )
    sums = matrix.sum(1)
    counts = bool((matrix == matrix.round()).all())
    wrong = ((sums <= 0) if counts else ((sums - 1).abs() > _ROW_SUM_ERROR)).nonzero()[:, 0].tolist()
    shown = first_few([f"{float(sums[row]):.6g} in row {row + 1}" for row in wrong])
    check(
        not wrong,
        f"{path} must hold counts with at least one in each row, or shares that sum to 1 in each row, got {shown}",
    )
    return matrix / sums[:, None]


def _in_class_order(path: Path, matrix: Tensor, given: Sequence[str], names: Sequence[str]) -> Tensor:
    check(
        bool(names),
        f"{path} names its classes, and the dataset does not: leave out the file's first line and column",
    )
    differing = sorted(set(given) ^ set(names))
    check(
        not differing and len(set(given)) == len(given),
        f"{path} must name the dataset's classes, each once, differing: {first_few(differing or list(given))}",
    )
    order = torch.tensor([given.index(name) for name in names])
    return matrix[order][:, order]


def sample_keys(split: Split) -> list[str]:
    """Return a key of each sample that does not depend on their order: a hash of its bytes, or its image's path."""
    if not isinstance(split.inputs, Tensor):
        return [name.decode(errors="surrogateescape") for name in split.inputs.names]
    samples = split.inputs.contiguous().cpu().numpy()
    return [hashlib.sha256(sample.tobytes()).hexdigest() for sample in samples]


def write_labels(path: Path, split: Split, labels: Sequence[int]) -> None:
    """Write a file for ``NoisyLabels`` with a label for each sample of a split; their order may change later.

    Args:
        path: The file, ``NAME.npz``.
        split: The samples, as the dataset holds them.
        labels: The label of each sample.

    Raises:
        UserError: if there is not one whole number per sample.
    """
    check(len(labels) == len(split), f"labels must be one per sample ({len(split)}), got {len(labels)}")
    numbers = to_labels("labels", labels).cpu().numpy()
    np.savez_compressed(path, sample=np.array(sample_keys(split)), label=numbers)


def read_labels(path: Path, dataset: Dataset) -> Tensor:
    """Return the training labels from a file, int64 ``(n,)``; samples that are not in the file keep their labels.

    The file holds the array ``label`` of whole numbers. It may also hold the array ``sample`` with the key of the
    sample that each label belongs to, see :func:`sample_keys`. Without ``sample`` the labels are those of all training
    samples in their order. If several samples have the same key, they get its labels in the order of the file.

    Args:
        path: The file, ``NAME.npz``.
        dataset: The dataset before the condition.

    Raises:
        MissingDataError: if there is no such file.
        UserError: if the file does not hold these arrays, a label is not one of the classes, no sample of the file is
            in the training split, or there is no ``sample`` and not one label per training sample.
    """
    try:
        arrays = arrays_in(path)
    except FileNotFoundError as error:
        raise MissingDataError(f"the file of labels {path} does not exist") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read as an .npz file of arrays: {error}") from error
    check("label" in arrays, f"{path} must hold an array 'label', and 'sample' where it is not in order")
    given = arrays["label"]
    check(
        given.ndim == 1 and given.dtype.kind in "iu" and len(given) > 0,
        f"{path}: label must be whole numbers (n,), got {given.dtype} {given.shape}",
    )
    check(
        int(given.min()) >= 0 and int(given.max()) < dataset.classes,
        f"{path}: labels must lie in [0, {dataset.classes}), got {int(given.min())} to {int(given.max())}",
    )
    if "sample" not in arrays:
        check(
            len(given) == len(dataset.train),
            f"{path} must hold a label for each of the {len(dataset.train)} training samples, got {len(given)}: put "
            "NoisyLabels before the conditions that leave samples out, or write the file with write_labels",
        )
        return torch.from_numpy(given.astype(np.int64))
    return _matched(path, arrays["sample"], given, dataset.train)


def _matched(path: Path, keys: np.ndarray[Any, Any], given: np.ndarray[Any, Any], train: Split) -> Tensor:
    check(
        keys.shape == given.shape,
        f"{path}: sample and label must have the same shape, got {keys.shape} and {given.shape}",
    )
    waiting: dict[str, Iterator[int]] = {}
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for key, label in zip(keys.tolist(), given.tolist(), strict=True):
        by_key[str(key)].append(label)
    labels = train.labels.tolist()
    for row, key in enumerate(sample_keys(train)):
        if key in by_key:
            labels[row] = next(waiting.setdefault(key, iter(by_key[key])), labels[row])
    check(bool(waiting), f"{path}: none of its {len(keys)} samples is in the training split")
    return torch.tensor(labels, dtype=torch.int64)


def confused_labels(labels: Tensor, matrix: Tensor, probability: float, generator: Generator) -> Tensor:
    """Return the labels, each replaced with ``probability`` by one drawn from its class's row of a matrix.

    Args:
        labels: int64 ``(n,)``.
        matrix: Row c holds how likely each label is for a sample of class c, float64 ``(classes, classes)``.
        probability: In ``[0, 1]``.
        generator: The source of randomness.
    """
    reached = matrix.cumsum(1)
    draw = torch.rand(len(labels), generator=generator, dtype=torch.float64) * reached[labels, -1]
    drawn = torch.empty_like(labels)
    for label in range(len(matrix)):  # class by class: all samples' rows at once would be (n, classes)
        rows = labels == label
        drawn[rows] = torch.searchsorted(reached[label], draw[rows], right=True)
    replaced = torch.rand(len(labels), generator=generator, dtype=torch.float64) < probability
    return torch.where(replaced, drawn, labels)
