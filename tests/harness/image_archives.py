"""Image files that only tests write: folders of classes as of iNaturalist, and Parquet files as of Hugging Face."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from pyarrow import parquet

from topk_platform.testing.standins import Painter

__all__ = ["IMAGE", "pictures", "png", "structs", "write_inaturalist", "write_parquet"]

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def pictures(count: int, height: int = 8, width: int = 8, seed: int = 0) -> np.ndarray:
    """Return images of noise ``(count, height, width, 3)`` in bytes."""
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def structs(images: Iterable[np.ndarray]) -> pa.Array:
    """Return a column of images as Hugging Face has it."""
    return pa.array([{"bytes": png(image), "path": None} for image in images], IMAGE)


def write_parquet(
    path: Path, columns: Mapping[str, Any], names: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Write a table as the ``datasets`` package does: what is known of each column stands in the metadata."""
    table = pa.table(columns)
    if names is not None:
        features = {column: {"names": list(of), "_type": "ClassLabel"} for column, of in names.items()}
        noted = json.dumps({"info": {"features": features}}).encode()
        table = table.replace_schema_metadata({b"huggingface": noted})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path, row_group_size=7)


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
