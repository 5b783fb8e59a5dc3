"""Image files that only tests write: folders of classes as of iNaturalist."""

from __future__ import annotations

from pathlib import Path

from topk_platform.testing.standins import Painter


def write_inaturalist(folder: Path, classes: int = 4, train: int = 10, test: int = 3, seed: int = 0) -> Path:
    """Write ``inaturalist`` with ``train`` and ``test`` and classes named as in iNaturalist 2021; return that folder.

    Args:
        folder: The data folder.
        classes: The number of classes.
        train: Training images of the first class; the last class has four, enough to hold some out.
        test: Images per class in ``test``.
        seed: Seed of the images.
    """
    root, painter = folder / "inaturalist", Painter(classes, seed)
    for label in range(classes):
        name = f"{label:05}_Plantae_Tracheophyta_Magnoliopsida_Fabales_Fabaceae_Planta_{'abcdefghij'[label % 10]}"
        count = round(4 * (train / 4) ** (1 - label / max(classes - 1, 1)))
        for split, images in (("train", count), ("test", test)):
            for number in range(images):
                painter.write(root / split / name / f"{label:04}-{split}-{number:04}.jpg", label)
    return root
