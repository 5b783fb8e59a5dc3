"""A small part of the simulation of docs/statistics.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scripts import loaded

TABLES = 15
simulation = loaded(Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py", "interval_coverage")


# The shares of levels and of differences covered, in percent, as docs/statistics.md has them of many more tables.
@pytest.mark.parametrize(
    ("name", "levels", "differences", "false_marks"),
    [
        ("searched once, luck 0.1, 2,000 images", 82.7, 68.7, True),
        ("3 searches, 2 seeds each, 60 groups", 98.8, 99.4, False),
        ("15 groups, the largest 8 times the smallest", 93.2, 98.2, False),
        ("the same, a study's searches share half of their luck", 98.0, 98.2, False),
    ],
)
def test_what_is_covered_is_what_the_page_says(
    name: str, levels: float, differences: float, false_marks: bool
) -> None:
    """And a search made once gives tables false marks, with losses that are truly equal: so such tables have none."""
    (world,) = [world for world in simulation.worlds() if world.name == name]
    measured = simulation.measured(world, TABLES)
    # The regimes of a table are independent, and what is covered in one of them is at worst covered all or not at all:
    # so the share has at most the binomial variance p (1 - p) / n, where n counts regimes. Levels are judged in every
    # fifth table. 3.3 standard errors are passed by chance once in a thousand times.
    regimes = simulation.COLUMNS * np.array([-(-TABLES // 5), TABLES])
    p = np.array([levels, differences]) / 100
    assert np.all(np.abs(measured[:2] / 100 - p) < 3.3 * np.sqrt(p * (1 - p) / regimes))
    assert (measured[2] > 0) == false_marks
