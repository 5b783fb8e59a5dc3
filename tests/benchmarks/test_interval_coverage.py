"""A small part of the simulation of docs/statistics.md."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TABLES = 5


@pytest.fixture(scope="module")
def simulation() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("interval_coverage")
    sys.path.remove(str(BENCHMARKS))


def counted(simulation: ModuleType, name: str) -> tuple[float, float, float]:
    """Of five tables in percent: levels and differences covered, tables with a false mark."""
    (world,) = [world for world in simulation.worlds() if world.name == name]
    levels, differences, false = simulation.measured(world, TABLES)
    return float(levels), float(differences), float(false)


def test_a_search_made_once_gives_many_tables_a_false_mark(simulation: ModuleType) -> None:
    """With losses that are truly equal: so such tables have no marks, for their intervals cannot cover the search."""
    _, differences, false = counted(simulation, "searched once, luck 0.1, 2,000 images")
    assert differences < 80 and false > 30


@pytest.mark.parametrize(
    "name",
    [
        "3 searches, 2 seeds each, 60 groups",
        "60 groups of images",
        "the same, a study's searches share half of their luck",
    ],
)
def test_what_the_rows_show_is_covered(simulation: ModuleType, name: str) -> None:
    levels, differences, false = counted(simulation, name)
    assert levels > 85 and differences > 94.5 and false == 0
