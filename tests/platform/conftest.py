"""A folder of data of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def data_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's folder, which data are read from and in which what is made of them is kept."""
    monkeypatch.setenv("TOPK_DATA", str(tmp_path))
    monkeypatch.delenv("TOPK_CACHE", raising=False)
    return tmp_path
