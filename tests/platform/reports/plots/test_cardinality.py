"""The plot of accuracies over the number of candidates, from points that were written as selectors write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from topk_platform import Loss, Model, Recipe, Regime, Study, grid, plot
from topk_platform.records import Store
from topk_platform.reports.plots import cardinality
from topk_platform.results.cardinality import CardinalityPoint, read_points, write_points
from topk_platform.testing import fake_run


def test_each_arm_has_its_own_points_and_the_table_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = [Loss("cross_entropy"), Loss("focal")]
    arms = grid([Regime("r", "digits")], [Model("linear")], losses, k=2, recipe=Recipe(1))
    study = Study("s", arms, topk=(1, 2), seeds=2)
    rows = fake_run(study, tmp_path, lambda _: 0.5).rows("phase = 'confirm'")
    points = [
        CardinalityPoint(
            f"r/linear/{row['loss']}", row["key"], row["seed"], "selected", value, "log", value, right, 9, 9
        )
        for row in rows
        for value, right in ((1.0, 0.5), (2.0, 0.75 if row["loss"] == "focal" else 0.625))
    ]
    write_points(Store.open(tmp_path).at("s"), points)
    calls: list[Store] = []

    def counted(store: Store) -> list[CardinalityPoint]:
        calls.append(store)
        return read_points(store)

    monkeypatch.setattr(cardinality, "read_points", counted)
    (ax,) = plot(study, "cardinality", store=tmp_path).axes
    drawn = {str(line.get_label()): line.get_xydata().tolist() for line in ax.lines}
    assert drawn == {"cross_entropy": [[1.0, 50.0], [2.0, 62.5]], "focal": [[1.0, 50.0], [2.0, 75.0]]}
    assert len(calls) == 1
