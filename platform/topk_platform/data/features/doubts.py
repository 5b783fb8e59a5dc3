"""What features say about the images they were computed from: near copies, and labels that look wrong."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from topk_platform.data.dataset import Dataset
from topk_platform.specs.checks import first_few

__all__ = ["DOUBTS", "NEAR", "notes_on_features"]

NEAR = 0.8
"""The cosine of two images' features from which on they are near copies.

Of 200 photos of ImageNet 95 % have at least so much in common with a copy of themselves at half their size and with
JPEG's quality 75, and of 600 photos of different things no two have more than 0.74 (EfficientNet-Lite0, 160 pixels).
"""
DOUBTS = 0.1
"""How much nearer than its own class another class has to be, in cosines, for a label to be doubted.

With 12 % of the labels of 856 images in 20 classes of a long tail replaced, 119 are doubted, and of the 50 doubted most
98 % are wrong; without wrong labels, 26 are doubted.
"""
_SAMPLE = 10**6  # pairs of images of different classes that are looked at
_MOST = 20_000  # beyond, comparing all pairs of images would take minutes
_KINDS = {
    "near copy": "images of different splits are nearly the same, as of one scene taken twice",
    "doubt": "labels look wrong, as the frozen network sees another class nearer than their own",
}


def notes_on_features(dataset: Dataset, features: dict[str, Tensor], file: Path) -> tuple[str, ...]:
    """Return sentences on near copies across splits and on doubtful labels; the whole list is kept in ``file``.

    Args:
        dataset: The images.
        features: The features of each split, ``(n, d)``.
        file: The CSV file, which is read if it is there.
    """
    if sum(map(len, features.values())) > _MOST:
        return ()
    if not file.is_file():
        unit = {name: functional.normalize(part.float(), dim=1) for name, part in features.items()}
        rows = [*_near_copies(dataset, unit), *_doubts(dataset, unit)]
        with file.open("w", newline="", encoding="utf-8") as lines:
            csv.writer(lines).writerows([("kind", "image", "label", "other", "cosine"), *rows])
    with file.open(newline="", encoding="utf-8") as lines:
        kept = list(csv.DictReader(lines))
    notes = []
    for kind, meaning in _KINDS.items():
        named = [f"{row['image']} ({row['other']})" for row in kept if row["kind"] == kind]
        notes += [f"{len(named)} {meaning}: {first_few(named)}; all are in {file}"] if named else []
    return tuple(notes)


Row = tuple[str, str, str, str, float]


def _near_copies(dataset: Dataset, features: dict[str, Tensor]) -> Iterator[Row]:
    splits = dataset.splits
    rows = []
    for earlier, later in (("train", "validation"), ("train", "test"), ("validation", "test")):
        cosines = features[earlier] @ features[later].T
        best, nearest = cosines.max(1)
        # Where images of different classes are as alike, as drawings of one style, being alike says nothing.
        others = cosines[splits[earlier].labels[:, None] != splits[later].labels][:_SAMPLE]
        usual = others.sort().values[-1 - len(others) // 1000].item() if len(others) else 0
        for row in (best >= max(NEAR, usual)).nonzero()[:, 0].tolist():
            name, label = splits[earlier].name(row, earlier), int(splits[earlier].labels[row])
            other = splits[later].name(int(nearest[row]), later)
            rows.append(("near copy", name, _class(dataset, label), other, float(best[row])))
    yield from sorted(rows, key=lambda row: -row[4])


def _doubts(dataset: Dataset, features: dict[str, Tensor]) -> Iterator[Row]:
    """Yield the images that are nearer to the mean of another class than to that of the others of their own."""
    x = torch.cat(list(features.values()))
    labels = torch.cat([split.labels for split in dataset.splits.values()])
    names = [split.name(row, part) for part, split in dataset.splits.items() for row in range(len(split))]
    sums = torch.zeros(dataset.classes, x.shape[1]).index_add_(0, labels, x)
    cosines = x @ functional.normalize(sums, dim=1).T
    own = (functional.normalize(sums[labels] - x, dim=1) * x).sum(1)
    own[torch.bincount(labels, minlength=dataset.classes)[labels] == 1] = 1  # nothing to compare it with
    best, other = cosines.scatter(1, labels[:, None], -1).max(1)
    margins = best - own
    for row in margins.argsort(descending=True).tolist():
        if margins[row] < DOUBTS:
            return
        label = _class(dataset, int(labels[row]))
        yield ("doubt", names[row], label, _class(dataset, int(other[row])), float(margins[row]))


def _class(dataset: Dataset, label: int) -> str:
    names = dataset.class_names
    return names[label] if names else str(label)
