"""Shared by all tests: the examples that Hypothesis tries, one torch thread, fixed seeds, and quiet tools."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# How many examples a property test tries is the profile's affair alone, so that `make fuzz` tries more of every test.
# Neither looks at a clock.
ANY_MACHINE = {
    "parent": settings.get_profile("default"),
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
}
settings.register_profile("tests", max_examples=30, derandomize=True, database=None, **ANY_MACHINE)
settings.register_profile("fuzz", max_examples=int(os.environ.get("FUZZ_EXAMPLES", "1000")), **ANY_MACHINE)
settings.load_profile("tests")


RAY = Path(__file__).parent / "end_to_end"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts Ray, which `make test` runs in a process of its own beside the others."""
    for item in items:
        if item.path.is_relative_to(RAY):
            item.add_marker("ray")


@pytest.fixture(autouse=True)
def one_thread_and_seed() -> None:
    """What a test does not draw from a generator of its own is the same whichever tests ran before it."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
