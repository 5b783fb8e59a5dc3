"""A small CIFAR-100 in the original's on-disk format, and a network that takes bytes."""

from __future__ import annotations

import hashlib
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.datasets import CIFAR100

from topk_platform.models import MODELS, convnet

TRAIN, TEST = 10, 2  # images of each class


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes as Python 2's strings, which is what the original's files hold."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value: str | bytes) -> None:
        raw = value.encode("latin1") if isinstance(value, str) else value
        self.write(b"T" + struct.pack("<i", len(raw)) + raw)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_string


@dataclass
class SmallCifar:
    """The files in ``folder / "cifar-100-python"`` and what is in them.

    ``reader`` is torchvision's own, told of these files' checksums in place of the original's.
    """

    folder: Path
    reader: type[CIFAR100]
    coarse_of: list[int]
    train: dict[str, Any]
    test: dict[str, Any]


def entry(per_class: int, coarse_of: list[int], generator: np.random.Generator) -> dict[str, Any]:
    fine = generator.permutation(np.repeat(np.arange(100), per_class)).tolist()
    return {
        "filenames": [f"{label}_{place}.png" for place, label in enumerate(fine)],
        "batch_label": "training batch 1 of 1",
        "fine_labels": fine,
        "coarse_labels": [coarse_of[label] for label in fine],
        "data": generator.integers(0, 256, (len(fine), 3072), dtype=np.uint8),
    }


class Bytes(nn.Module):
    """A network of images in bytes, whoever scales them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network(images.float())


@pytest.fixture
def bytes_convnet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``Model("bytes_convnet")`` be a convolutional network that takes images in bytes."""
    monkeypatch.setitem(MODELS, "bytes_convnet", lambda **arguments: Bytes(convnet(width=4, **arguments)))


@pytest.fixture
def small_cifar(tmp_path: Path) -> Callable[..., SmallCifar]:
    """Return a function that writes the files; ``change`` may spoil what goes into them."""

    def write(
        folder: Path = tmp_path, seed: int = 0, change: Callable[[dict[str, Any]], None] = lambda train: None
    ) -> SmallCifar:
        generator = np.random.default_rng(seed)
        coarse_of = generator.permutation(np.arange(100) % 20).tolist()
        contents = {
            "train": entry(TRAIN, coarse_of, generator),
            "test": entry(TEST, coarse_of, generator),
            "meta": {
                "fine_label_names": [f"fine{label:02}" for label in range(100)],
                "coarse_label_names": [f"coarse{label:02}" for label in range(20)],
            },
        }
        change(contents["train"])
        place = folder / "cifar-100-python"
        place.mkdir(parents=True)
        sums = {}
        for name, content in contents.items():
            with (place / name).open("wb") as file:
                Python2Pickler(file, protocol=2).dump(content)
            sums[name] = hashlib.md5((place / name).read_bytes()).hexdigest()  # noqa: S324 - as torchvision checks it

        class Small(CIFAR100):
            train_list = [["train", sums["train"]]]  # noqa: RUF012 - as torchvision declares it
            test_list = [["test", sums["test"]]]  # noqa: RUF012
            meta = {"filename": "meta", "key": "fine_label_names", "md5": sums["meta"]}  # noqa: RUF012

        return SmallCifar(folder, Small, coarse_of, contents["train"], contents["test"])

    return write
