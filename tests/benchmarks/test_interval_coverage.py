"""A small part of the simulation of docs/statistics.md: what was wrong stays reproduced, and what is right now."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TABLES = 5


@pytest.fixture(scope="module")
def simulation() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("interval_coverage")
    sys.path.remove(str(BENCHMARKS))


def counted(simulation: ModuleType, name: str) -> dict[str, np.ndarray]:
    """Of five tables in percent, before and after: levels and differences covered, tables with a false mark."""
    (world,) = [world for world in simulation.worlds() if world.name == name]
    found = simulation.measured(world, TABLES)
    return {"levels": found[:2], "differences": found[2:4], "false": found[4:]}


def test_a_search_made_once_gave_nearly_every_table_a_false_mark(simulation: ModuleType) -> None:
    """With losses that are truly equal; such tables have no marks now, for their intervals cannot cover the search."""
    found = counted(simulation, "searched once, luck 0.1, 2,000 images")
    assert found["false"][0] >= 80 and found["differences"].max() < 80


def test_searches_made_three_times_are_covered(simulation: ModuleType) -> None:
    found = counted(simulation, "3 searches, 2 seeds each, 60 groups")
    assert found["differences"][0] < 95 < found["differences"][1] < 98.5
    assert found["false"][1] == 0


def test_images_in_groups_are_covered_by_what_knows_the_groups(simulation: ModuleType) -> None:
    found = counted(simulation, "60 groups of images")
    assert found["levels"][0] + 8 < found["levels"][1]
    assert found["differences"][0] < 90 and 94 < found["differences"][1] < 98.5
    assert found["false"][1] == 0 < found["false"][0]
