"""What ``topk new`` looks for in users' data: rare classes, wrong labels, NaN."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from topk_platform.errors import UserError
from topk_platform.specs.checks import first_few

__all__ = ["check_finite", "check_labels", "few_images", "has_tail", "image_counts"]

_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_TAIL = 5  # times as many samples in the most frequent class as in the rarest


def image_counts(folder: Path) -> dict[str, int]:
    """Return how many images each class of a folder has, by name; hidden files are no images.

    Args:
        folder: The folder of a split, with a folder for each class.
    """
    classes = sorted(place for place in folder.iterdir() if place.is_dir() and place.name[0] != ".")
    return {place.name: sum(map(_is_image, _names(place))) for place in classes}


def _names(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder, followlinks=True) for name in names]


def _is_image(name: str) -> bool:
    return name.lower().endswith(_ENDINGS) and not name.startswith(".")


def few_images(counts: Mapping[str, int], least: int) -> str:
    """Return a note that names every class with too few images; empty if there is none.

    Args:
        counts: Images by class.
        least: How many a class needs: one for training and one for each split that is taken from it.

    Example:
        >>> few_images({"gull": 9, "owl": 2}, 3)[:61]
        '1 class has fewer than the 3 images that its splits need: owl'
    """
    few = [f"{name} ({count})" for name, count in counts.items() if count < least]
    if not few:
        return ""
    whose = "class has" if len(few) == 1 else "classes have"
    return (
        f"{len(few)} {whose} fewer than the {least} image{'s' if least > 1 else ''} that its splits need: "
        f"{', '.join(few)}. Add images, move such folders away, or give folders val and test of your own: "
        "`topk plan` refuses them as they are"
    )


def has_tail(counts: Mapping[Any, int]) -> bool:
    """Return whether the most frequent class has at least five times as many samples as the rarest."""
    return max(counts.values(), default=0) >= _TAIL * min(counts.values(), default=0) > 0


def check_labels(name: Any, labels: npt.NDArray[np.integer[Any]]) -> None:
    """Raise ``UserError`` unless labels number classes from 0 on, naming those that do not and their first rows.

    Args:
        name: What they are called in their file.
        labels: Whole numbers ``(n,)``.
    """
    found, first, counts = np.unique(labels, return_index=True, return_counts=True)
    if len(found) and found[0] == 1 and found[-1] == len(found):
        raise UserError(
            f"--from: labels {name!r} must number the classes from 0 on, got 1 to {found[-1]}: save labels - 1"
        )
    odd = (found < 0) | (found >= 2 * len(found))  # of the numbers up to the largest most must occur
    rows = [
        f"{label} ({count} times, first in row {row})"
        for label, count, row in zip(found[odd], counts[odd], first[odd], strict=True)
    ]
    if rows:
        raise UserError(
            f"--from: labels {name!r} must number the classes from 0 on, at most every other without a sample; of "
            f"{len(found)} different ones these do not: {first_few(rows)}"
        )


def check_finite(name: Any, inputs: npt.NDArray[Any]) -> None:
    """Raise ``UserError`` if inputs ``(n, ...)`` hold NaN or infinity, naming the rows by their places in the file."""
    if inputs.dtype.kind != "f":
        return
    rows = np.flatnonzero(~np.isfinite(inputs.reshape(len(inputs), -1)).all(1)).tolist()
    if rows:
        raise UserError(
            f"--from: inputs {name!r} must be finite, got NaN or infinity in rows (from 0) "
            f"{first_few([str(row) for row in rows])}: leave them out, or take np.nan_to_num(inputs)"
        )
