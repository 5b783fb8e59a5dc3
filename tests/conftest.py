"""Shared by all tests: one torch thread, and quiet tools."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

settings.register_profile("tests", deadline=None, print_blob=True)
settings.load_profile("tests")


RAY = Path(__file__).parent / "end_to_end"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts Ray, which `make test` runs by itself: beside other tests a cluster on two cores is too slow."""
    for item in items:
        if item.path.is_relative_to(RAY):
            item.add_marker("ray")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)
