"""The command in this process, and a folder of data of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import in_process
import pytest


@pytest.fixture
def topk() -> Callable[..., in_process.Said]:
    """The command, in this process: a function of its words that returns its exit code and what it printed."""
    return in_process.topk


@pytest.fixture
def data_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's folder, which data are read from and in which what is made of them is kept."""
    monkeypatch.setenv("TOPK_DATA", str(tmp_path))
    monkeypatch.delenv("TOPK_CACHE", raising=False)
    return tmp_path
