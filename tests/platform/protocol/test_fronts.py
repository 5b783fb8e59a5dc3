from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna._hypervolume import compute_hypervolume

from topk_platform.protocol.fronts import hypervolume, pareto, spread

POINTS = st.integers(2, 3).flatmap(
    lambda size: st.lists(
        st.lists(st.integers(0, 6).map(lambda n: n / 6), min_size=size, max_size=size), max_size=9
    )
)


@given(POINTS)
def test_the_volume_is_optunas(points: list[list[float]]) -> None:
    expected = compute_hypervolume(-np.array(points), np.zeros(len(points[0]))) if points else 0.0
    assert hypervolume(points) == pytest.approx(expected, abs=1e-12)
    assert hypervolume([points[i] for i in pareto(points)]) == pytest.approx(expected, abs=1e-12)


@given(POINTS)
def test_every_point_off_the_front_is_beaten_by_one_on_it_and_none_on_it_by_any(
    points: list[list[float]],
) -> None:
    front = pareto(points)
    for i, point in enumerate(points):
        as_good = [j for j in front if all(a >= b for a, b in zip(points[j], point, strict=True))]
        assert as_good == [i] if i in front else as_good


@given(POINTS, st.integers(1, 9))
def test_of_a_front_so_many_are_taken_and_fewer_are_the_first_of_more(
    points: list[list[float]], count: int
) -> None:
    front = [points[i] for i in pareto(points)]
    taken = spread(front, count)
    assert len(set(taken)) == len(taken) == min(count, len(front))
    assert spread(front, 9)[:count] == taken
    if front:
        assert front[taken[0]][0] == max(point[0] for point in front)
