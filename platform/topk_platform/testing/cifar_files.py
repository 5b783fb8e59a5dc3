"""A small made-up CIFAR-100 in the original's file format."""

from __future__ import annotations

import hashlib
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from topk_platform.testing.standins import Painter

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR100

__all__ = ["SmallCifar100", "write_cifar100"]


@dataclass(frozen=True)
class SmallCifar100:
    """The files that :func:`write_cifar100` wrote, and their content.

    Args:
        folder: The data folder.
        reader: torchvision's reader with the checksums of these files instead of the original's.
        coarse_of: The superclass of each class.
        train: The content of the training file.
        test: The content of the test file.
    """

    folder: Path
    reader: type[CIFAR100]
    coarse_of: list[int]
    train: dict[str, Any]
    test: dict[str, Any]


def write_cifar100(
    folder: Path,
    classes: int = 100,
    train: int = 10,
    test: int = 2,
    seed: int = 0,
    change: Callable[[dict[str, Any]], None] | None = None,
) -> SmallCifar100:
    """Write ``cifar-100-python`` in the original's file format.

    Args:
        folder: The data folder.
        classes: The number of classes.
        train: Training images per class.
        test: Test images per class.
        seed: Seed of the images and superclasses.
        change: A function that may modify the content of the training file before it is written.
    """
    painter = Painter(classes, seed)
    groups = max(classes // 5, 2)
    coarse_of = painter.generator.permutation(np.arange(classes) % groups).tolist()
    contents = {"train": _batch(painter, train, coarse_of), "test": _batch(painter, test, coarse_of)}
    names = {
        "fine_label_names": [f"fine{label:02}" for label in range(classes)],
        "coarse_label_names": [f"coarse{label:02}" for label in range(groups)],
    }
    (change or (lambda _: None))(contents["train"])
    location = folder / "cifar-100-python"
    location.mkdir(parents=True)
    sums = {}
    for name, content in {**contents, "meta": names}.items():
        with (location / name).open("wb") as file:
            _Python2Pickler(file, protocol=2).dump(content)
        sums[name] = hashlib.md5((location / name).read_bytes()).hexdigest()  # noqa: S324 - as torchvision checks it
    return SmallCifar100(folder, _reader_of(sums), coarse_of, contents["train"], contents["test"])


def _batch(painter: Painter, per_class: int, coarse_of: list[int]) -> dict[str, Any]:
    fine = painter.generator.permutation(np.repeat(np.arange(len(coarse_of)), per_class)).tolist()
    planes = [painter.pixels(label, (32, 32)).transpose(2, 0, 1).reshape(3072) for label in fine]
    return {
        "filenames": [f"{label}_{index}.png" for index, label in enumerate(fine)],
        "batch_label": "training batch 1 of 1",
        "fine_labels": fine,
        "coarse_labels": [coarse_of[label] for label in fine],
        "data": np.stack(planes),
    }


def _reader_of(sums: dict[str, str]) -> type[CIFAR100]:
    from torchvision.datasets import CIFAR100  # noqa: PLC0415 - a second of import

    lists = {f"{part}_list": [[part, sums[part]]] for part in ("train", "test")}
    meta = {"filename": "meta", "key": "fine_label_names", "md5": sums["meta"]}
    return type("Small", (CIFAR100,), {**lists, "meta": meta})


_Pickler: Any = vars(pickle)["_Pickler"]  # the pickler written in Python, whose methods can be replaced


class _Python2Pickler(_Pickler):  # type: ignore[misc]
    """Writes text and bytes as Python 2 strings, as in the original files."""

    dispatch: ClassVar = dict(_Pickler.dispatch)

    def save_string(self, value: str | bytes) -> None:
        raw = value.encode("latin1") if isinstance(value, str) else value
        self.write(b"T" + struct.pack("<i", len(raw)) + raw)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_string
