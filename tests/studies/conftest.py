"""The stand-ins of large datasets, written once for all tests of studies."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folder_of_standins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("standins")


@pytest.fixture
def standins(folder_of_standins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep stand-ins in a folder of the tests' own, and not in the user's cache."""
    monkeypatch.setenv("TOPK_CACHE", str(folder_of_standins))
