"""Faults in users' data that ``topk new`` reports: classes with few images, wrong labels, NaN."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from topk_platform.errors import UserError
from topk_platform.specs.checks import first_few

__all__ = [
    "all_zero",
    "check_finite",
    "check_labels",
    "few_images",
    "has_tail",
    "image_counts",
    "large_numbers",
    "not_read",
]

_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_LARGE = 20  # data with a standard deviation of 1 have no such numbers
_TAIL = 5  # the most frequent class has at least so many times as many samples as the rarest


def image_counts(folder: Path) -> dict[str, int]:
    """Return how many images each class of a folder has, by name; hidden files are ignored.

    Args:
        folder: The folder of a split, with a folder for each class.
    """
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    walks = {entry.name: os.walk(entry, followlinks=True) for entry in classes}
    return {
        name: sum(_is_image(file) for *_, files in walk for file in files) for name, walk in walks.items()
    }


def _is_image(name: str) -> bool:
    return name.lower().endswith(_ENDINGS) and not name.startswith(".")


def not_read(folder: Path) -> str:
    """Return a note on files that are not read, and on images in subfolders of classes; empty if there are none.

    Args:
        folder: The folder of a dataset, ``CLASS/IMAGE`` or ``train/CLASS/IMAGE``.

    Effect: reads the names of all files.
    """
    split = (folder / "train").is_dir()
    others: Counter[str] = Counter()
    beside = nested = 0
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        depth = len(Path(parent).relative_to(folder).parts) - split  # 1 is a class's folder
        images = sum(map(_is_image, names))
        beside += images if depth < 1 else 0
        nested += images if depth > 1 else 0
        others.update(_ending(name) for name in names if not _is_image(name) and not name.startswith("."))
    lines = []
    if others:
        kinds = ", ".join(
            f"{count} {ending}"
            for ending, count in sorted(others.items(), key=lambda pair: (-pair[1], *pair))
        )
        svg = ": save drawings (.svg) as .png" if others[".svg"] else ""
        lines.append(f"not read: {others.total()} other than images ({kinds}){svg}")
    if beside:
        lines.append(f"not read because they are not in the folder of a class: {beside}")
    if nested:
        lines.append(f"in folders within a class's folder, and counted as images of that class: {nested}")
    return f"files {'; '.join(lines)}" if lines else ""


def _ending(name: str) -> str:
    return Path(name).suffix.lower() or "without an ending"


def few_images(counts: Mapping[str, int], least: int, remedy: str, what: str = "images") -> str:
    """Return a note that names every class with too few images; empty if there is none.

    Args:
        counts: Images by class.
        least: How many images a class needs: one for training, and one for each split that is taken from training.
        remedy: What to do about it.
        what: What is counted.

    Example:
        >>> few_images({"gull": 9, "owl": 2}, 3, "Add images")[:61]
        '1 class has fewer than the 3 images that its splits need: owl'
    """
    few = [f"{name} ({count})" for name, count in counts.items() if count < least]
    if not few:
        return ""
    whose = "class has" if len(few) == 1 else "classes have"
    return (
        f"{len(few)} {whose} fewer than the {least} {what if least > 1 else what[:-1]} that its splits need: "
        f"{', '.join(few)}. {remedy}: `topk plan` refuses them as they are"
    )


def all_zero(name: Any, inputs: npt.NDArray[Any]) -> str:
    """Return a note on inputs ``(n, ...)`` that are zero everywhere; empty if there are none."""
    rows = np.flatnonzero(~inputs.reshape(len(inputs), -1).any(1)).tolist()
    if not rows:
        return ""
    return (
        f"{len(rows)} of {len(inputs)} inputs in {name!r} are zero everywhere: rows (from 0) "
        f"{first_few([str(row) for row in rows])}"
    )


def large_numbers(name: Any, inputs: npt.NDArray[Any]) -> str:
    """Return a note on images with numbers far from 0, which are not normalised; empty for other images."""
    low, high = float(inputs.min()), float(inputs.max())
    if max(-low, high) <= _LARGE:
        return ""
    bytes_ = (
        ": save them as uint8, which are normalised, or divide them by 255"
        if low >= 0 and high <= 255
        else ""
    )
    return (
        f"inputs {name!r} are numbers from {low:g} to {high:g} and reach the network as they are"
        f"{bytes_ or ': scale them to about -1 to 1'}"
    )


def has_tail(counts: Mapping[Any, int]) -> bool:
    """Return whether the most frequent class has at least five times as many samples as the rarest."""
    return max(counts.values(), default=0) >= _TAIL * min(counts.values(), default=0) > 0


def check_labels(name: Any, labels: npt.NDArray[np.integer[Any]]) -> None:
    """Raise ``UserError`` unless the labels are class numbers from 0 on, of which at least half occur.

    The error names the wrong labels with their first rows.

    Args:
        name: The name of the labels in their file.
        labels: Whole numbers ``(n,)``.
    """
    numbers, first, counts = np.unique(labels, return_index=True, return_counts=True)
    if len(numbers) and numbers[0] == 1 and numbers[-1] == len(numbers):
        raise UserError(
            f"--from: labels {name!r} must number the classes from 0 on, got 1 to {numbers[-1]}: save labels - 1"
        )
    odd = (numbers < 0) | (
        numbers >= 2 * len(numbers)
    )  # a few missing classes are allowed, but not labels that are other numbers, such as years
    rows = [
        f"{label} ({count} times, first in row {row})"
        for label, count, row in zip(numbers[odd], counts[odd], first[odd], strict=True)
    ]
    if rows:
        raise UserError(
            f"--from: labels {name!r} must number the classes from 0 on, and at least half of the numbers must occur, "
            f"got {len(numbers)} different labels, and these are too small or too large: {first_few(rows)}"
        )


def check_finite(name: Any, inputs: npt.NDArray[Any]) -> None:
    """Raise ``UserError``, with the rows, if inputs ``(n, ...)`` contain NaN or infinity."""
    if inputs.dtype.kind != "f":
        return
    rows = np.flatnonzero(~np.isfinite(inputs.reshape(len(inputs), -1)).all(1)).tolist()
    if rows:
        raise UserError(
            f"--from: inputs {name!r} must be finite, got NaN or infinity in rows (from 0) "
            f"{first_few([str(row) for row in rows])}: leave them out, or take np.nan_to_num(inputs)"
        )
