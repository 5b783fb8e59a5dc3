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
    result = simulation.measured(world, TABLES)
    return {"levels": result[:2], "differences": result[2:4], "false": result[4:]}


def test_a_search_made_once_gave_nearly_every_table_a_false_mark(simulation: ModuleType) -> None:
    """With losses that are truly equal; such tables have no marks now, for their intervals cannot cover the search."""
    result = counted(simulation, "searched once, luck 0.1, 2,000 images")
    assert result["false"][0] >= 80 and result["differences"].max() < 80


def test_searches_made_three_times_are_covered(simulation: ModuleType) -> None:
    result = counted(simulation, "3 searches, 2 seeds each, 60 groups")
    assert result["differences"][0] < 95 < result["differences"][1] < 98.5
    assert result["false"][1] == 0


def test_images_in_groups_are_covered_by_what_knows_the_groups(simulation: ModuleType) -> None:
    result = counted(simulation, "60 groups of images")
    assert result["levels"][0] + 8 < result["levels"][1]
    assert result["differences"][0] < 90 and 94 < result["differences"][1] < 98.5
    assert result["false"][1] == 0 < result["false"][0]
