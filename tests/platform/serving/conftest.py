"""Photos of three kinds of trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def photos_of_trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with ``trees``: three classes of noisy colours, eight images each, in every split."""
    folder, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for split in ("train", "val", "test"):
        for label, name in enumerate(("ash", "birch", "cedar")):
            location = folder / "trees" / split / name
            location.mkdir(parents=True)
            for number in range(8):
                pixels = random.integers(0, 120, (20, 26, 3))
                pixels[..., label] += 60
                Image.fromarray(pixels.astype(np.uint8)).save(location / f"{number}.png")
    return folder
