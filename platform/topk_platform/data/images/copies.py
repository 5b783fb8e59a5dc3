"""Images that are suspect: equal or nearly equal ones in several splits or classes, and labels that look wrong."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.images.contents import contents
from topk_platform.data.images.in_files import Images
from topk_platform.data.images.listing import SPLITS
from topk_platform.specs.checks import check, first_few, plural

__all__ = [
    "DOUBTS",
    "NEAR",
    "apart",
    "first_of_each",
    "in_several_classes",
    "notes_on_features",
    "same_images",
    "united",
]


def same_images(splits: Mapping[str, Split]) -> dict[str, Tensor]:
    """Return a number for each image of each split, int64 ``(n,)``; equal images have equal numbers.

    Images in memory are equal if the network gets the same pixels, images in files if the files hold the same bytes.
    Rows of numbers are no images: equal ones are common, and each has a number of its own.

    Args:
        splits: The splits, all with inputs of one kind.

    Example:
        >>> pixels = torch.tensor([1, 2, 1], dtype=torch.uint8)[:, None, None, None]
        >>> same_images({"train": Split(pixels, torch.zeros(3).long())})["train"].tolist()
        [0, 1, 0]
    """
    inputs = [split.inputs for split in splits.values()]
    lengths = [len(split) for split in splits.values()]
    keys: Sequence[object] = range(sum(lengths))
    files = [part for part in inputs if isinstance(part, Images)]
    if files:
        keys = _contents_of_files(files)
    elif inputs[0].dtype == torch.uint8:
        keys = [content for part in inputs for content in contents(part)]
    first: dict[object, int] = {}
    numbers = torch.tensor([first.setdefault(key, len(first)) for key in keys], dtype=torch.int64)
    return dict(zip(splits, torch.split(numbers, lengths), strict=True))


def _contents_of_files(parts: Sequence[Images]) -> list[object]:
    """Return the sizes of files whose sizes are unique, which need not be read, and what all others hold."""
    sizes = np.concatenate([part.files.sizes[part.rows.numpy()] for part in parts])
    _, which, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    alike = torch.from_numpy(counts[which] > 1)
    keys: list[object] = sizes.tolist()
    held = (
        content
        for part, same in zip(parts, torch.split(alike, [len(part) for part in parts]), strict=True)
        for content in contents(part[same.nonzero()[:, 0]])
    )
    for row, content in zip(alike.nonzero()[:, 0].tolist(), held, strict=True):
        keys[row] = content
    return keys


def first_of_each(numbers: Tensor) -> Tensor:
    """Return the row of the first image with each number, int64, in ascending order.

    Example:
        >>> first_of_each(torch.tensor([4, 1, 4, 2])).tolist()
        [0, 1, 3]
    """
    return torch.from_numpy(np.sort(np.unique(numbers.numpy(), return_index=True)[1]))


def united(groups: Tensor, copies: Tensor) -> Tensor:
    """Return the numbers of the smallest groups that keep groups and copies whole, int64 ``(n,)``.

    Args:
        groups: The group of each sample, int64 ``(n,)``.
        copies: The number of each image, int64 ``(n,)``, see :func:`same_images`.

    Example:
        >>> united(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2])).tolist()
        [0, 0, 0, 1]
    """
    from scipy import sparse  # noqa: PLC0415 - most datasets do not need it

    own, same = (torch.unique(each, return_inverse=True)[1].numpy() for each in (groups, copies))
    size = len(groups) + len(copies)
    graph = sparse.coo_array((np.ones(len(own)), (own, len(groups) + same)), shape=(size, size))
    parts = sparse.csgraph.connected_components(graph, directed=False)[1][own]
    return torch.from_numpy(np.unique(parts, return_inverse=True)[1])


def apart(
    splits: Mapping[str, Split],
    numbers: Mapping[str, Tensor],
    drop: bool,
) -> dict[str, Tensor]:
    """Return the rows of each split that are no copies of a later split's images.

    Args:
        splits: The splits.
        numbers: The number of each image, see :func:`same_images`.
        drop: Whether copies are left out of the earlier split; otherwise they are an error.

    Raises:
        UserError: if two splits share an image, unless ``drop``.
    """
    kept = {name: torch.ones(len(split), dtype=torch.bool) for name, split in splits.items()}
    for earlier, later in combinations([name for name in SPLITS if name in splits], 2):
        shared = torch.isin(numbers[earlier], numbers[later])
        kept[earlier] &= ~shared
        rows = shared.nonzero()[:, 0].tolist()
        of = [int((numbers[later] == numbers[earlier][row]).nonzero()[0]) for row in rows[:4]]
        pairs = [
            f"{splits[earlier].name(row, earlier)} = {splits[later].name(other, later)}"
            for row, other in zip(rows, of, strict=False)
        ]
        named = first_few([*pairs, *map(str, rows[4:])], 3)
        check(
            drop or not rows,
            f"copies: {len(rows)} of the {len(splits[earlier])} images of {earlier} are in {later} too, so the score "
            f"would be measured on images that were seen before: {named}. Move them away, or take copies='drop' (`topk "
            f"new --drop-copies`), which leaves them out of {earlier}",
        )
    return {name: rows.nonzero()[:, 0] for name, rows in kept.items()}


def in_several_classes(splits: Mapping[str, Split], numbers: Mapping[str, Tensor]) -> str:
    """Return a sentence that names equal images of different classes; empty if there are none."""
    every = torch.cat(list(numbers.values()))
    first: dict[int, tuple[str, int, int]] = {}
    pairs: list[str] = []
    if len(torch.unique(every)) == len(every):  # as nearly always, and much faster
        return ""
    for name, split in splits.items():
        for row, (number, label) in enumerate(
            zip(numbers[name].tolist(), split.labels.tolist(), strict=True)
        ):
            other, at, of = first.setdefault(number, (name, row, label))
            if of != label:
                pairs.append(f"{splits[other].name(at, other)} = {split.name(row, name)}")
    return (
        f"{plural(len(pairs), 'image')} also in another class, of which one must be wrong: {first_few(pairs, 3)}"
        if pairs
        else ""
    )


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
    for earlier, later in combinations(splits, 2):
        cosines = features[earlier] @ features[later].T
        best, nearest = cosines.max(1)
        # Where images of different classes are as alike, as drawings of one style, being alike says nothing.
        others = cosines[splits[earlier].labels[:, None] != splits[later].labels][:_SAMPLE]
        usual = others.sort().values[-1 - len(others) // 1000].item() if len(others) else 0
        for row in (best >= max(NEAR, usual)).nonzero()[:, 0].tolist():
            name, label = splits[earlier].name(row, earlier), int(splits[earlier].labels[row])
            other = splits[later].name(int(nearest[row]), later)
            rows.append(("near copy", name, _class_of(dataset, label), other, float(best[row])))
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
        label = _class_of(dataset, int(labels[row]))
        yield ("doubt", names[row], label, _class_of(dataset, int(other[row])), float(margins[row]))


def _class_of(dataset: Dataset, label: int) -> str:
    names = dataset.class_names
    return names[label] if names else str(label)
