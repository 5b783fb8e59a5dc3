"""Photos of noise, all of other pixels, and the two readers of folders of photos."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from topk_platform.data import Dataset, image_files, image_folder

__all__ = ["READERS", "Read", "by_both_readers", "write_photos"]

READERS = {
    "image_folder": partial(image_folder, size=8),
    "image_files": partial(image_files, size=8, resize=8),
}
Read = Callable[..., Dataset]
by_both_readers = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


def write_photos(
    folder: Path,
    classes: Iterable[str],
    count: int,
    size: tuple[int, int] = (9, 9),
    seed: int = 0,
    ending: str = "png",
) -> Path:
    """Write ``count`` photos of each class into a folder of its name; more of them begin with the same ones."""
    draw, classes = np.random.default_rng(seed), tuple(classes)
    for number in range(count):
        for name in classes:
            (folder / name).mkdir(parents=True, exist_ok=True)
            pixels = draw.integers(0, 256, (*size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:03}.{ending}")
    return folder
