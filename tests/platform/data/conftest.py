"""A small CIFAR-100 in the original's on-disk format, and a network that takes bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from topk_platform.models import MODELS
from topk_platform.models.vision import convnet
from topk_platform.testing.smoke_datasets import SmallCifar100, write_cifar100


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
def small_cifar(tmp_path: Path) -> Callable[..., SmallCifar100]:
    """Return the function that writes the files, by default into the test's folder."""

    def write(
        folder: Path = tmp_path, seed: int = 0, change: Callable[[dict[str, Any]], None] | None = None
    ) -> SmallCifar100:
        return write_cifar100(folder, seed=seed, change=change)

    return write
