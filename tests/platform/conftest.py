"""A folder of data of the test's own, and a network that takes bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from topk_platform.models import MODELS
from topk_platform.models.vision import convnet


@pytest.fixture
def data_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's folder, which data are read from and in which what is made of them is kept."""
    monkeypatch.setenv("TOPK_DATA", str(tmp_path))
    monkeypatch.delenv("TOPK_CACHE", raising=False)
    return tmp_path


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
