"""Shared by all tests: one torch thread, and quiet tools."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

settings.register_profile("tests", deadline=None, print_blob=True)
settings.load_profile("tests")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)
