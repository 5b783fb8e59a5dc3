"""Selectors of a study's confirmed networks: the table, the command and the plot."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study, UserError, plot
from topk_platform.cli import main
from topk_platform.records import Ledger, Store
from topk_platform.reports.plots import NothingToPlotError
from topk_platform.results.cardinality import TABLE, read_points
from topk_platform.serving.cardinality import PENALTIES, cardinality


@pytest.fixture(scope="module")
def confirmed(
    tmp_path_factory: pytest.TempPathFactory, train_study: Callable[[Study, Path], None]
) -> tuple[Path, Study]:
    folder = tmp_path_factory.mktemp("cardinality")
    losses = [Loss("cross_entropy"), Loss("focal")]
    arms = [Arm(Regime("r", "digits"), Model("linear"), loss, 2, Recipe(2, batch_size=32)) for loss in losses]
    study = Study("s", arms, topk=(1, 2), seeds=2)
    train_study(study, folder)
    return folder, study


def test_points_are_kept_and_drawn(confirmed: tuple[Path, Study]) -> None:
    folder, study = confirmed
    with pytest.raises(NothingToPlotError, match="topk cardinality s"):
        plot(study, "cardinality", store=folder)
    points = cardinality(study, store=folder)
    store = Store.open(folder)
    rows = {row["key"]: row for row in Ledger.open(store, "s").rows("phase = 'confirm'")}
    assert len(points) == 2 * 2 * (8 + len(PENALTIES)) and {point.key for point in points} == set(rows)
    for point in points:
        if point.kind == "fixed" and point.value <= 2:
            assert point.accuracy == pytest.approx(rows[point.key][f"test.top{point.value:g}"], abs=1e-12)
            assert point.cardinality == point.value
        if point.kind == "selected":
            assert 1 <= point.cardinality <= 8 and (point.trained, point.tested) == (360, 360)
    key = lambda point: (point.arm, point.seed, point.kind, point.value)  # noqa: E731
    assert sorted(read_points(store.at("s")), key=key) == sorted(points, key=key)
    (ax,) = plot(study, "cardinality", store=folder).axes
    drawn = {line.get_label(): line for line in ax.lines if not str(line.get_label()).startswith("_")}
    assert set(drawn) == {"cross_entropy", "focal"}
    for name, line in drawn.items():
        of_arm = [p for p in points if p.arm.endswith(name) and p.kind == "selected"]
        means = sorted(
            (sum(p.cardinality for p in same) / 2, 50 * sum(p.accuracy for p in same))
            for value in PENALTIES
            for same in [[p for p in of_arm if p.value == value]]
        )
        assert line.get_xydata().ravel().tolist() == pytest.approx([c for mean in means for c in mean])


def test_measuring_one_arm_again_keeps_the_others_and_repeats_its_points(
    confirmed: tuple[Path, Study],
) -> None:
    folder, study = confirmed
    cardinality(study, store=folder, penalties=(0.1,))
    again = cardinality(study, store=folder, penalties=(0.1, 0.2), only="*/focal", growth="linear")
    held = read_points(Store.open(folder).at("s"))
    assert {p.value for p in held if p.arm.endswith("focal") and p.kind == "selected"} == {0.1, 0.2}
    assert {p.value for p in held if p.arm.endswith("entropy") and p.kind == "selected"} == {0.1}
    assert cardinality(study, store=folder, penalties=(0.1, 0.2), only="*/focal", growth="linear") == again


def test_bad_input_and_a_damaged_table_are_one_line(confirmed: tuple[Path, Study], tmp_path: Path) -> None:
    folder, study = confirmed
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(UserError, match="penalties must be numbers of at least 0, got"):
            cardinality(study, store=folder, penalties=(0.1, wrong))
    with pytest.raises(UserError, match="growth must be log or linear, got 'square'"):
        cardinality(study, store=folder, growth="square")
    with pytest.raises(UserError, match="holds nothing of study"):
        cardinality(study, store=tmp_path)
    Store.open(tmp_path).at("s").write(TABLE, b"no table")
    with pytest.raises(UserError, match=r"cardinality\.parquet is damaged.*writes it again"):
        read_points(Store.open(tmp_path).at("s"))


def test_the_command_prints_what_it_keeps(
    confirmed: tuple[Path, Study], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, study = confirmed
    (folder / "a_study.py").write_text(
        f"from topk_platform import Study\nSTUDY = Study.from_json({study.to_json()!r})\n"
    )
    monkeypatch.chdir(folder)
    command = ["topk", "cardinality", "a_study:STUDY", "--store", str(folder), "--penalty", "0.1"]
    for options in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", [*command, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        out = capsys.readouterr().out
        if options:
            assert len(json.loads(out)) == 2 * 2 * 9
        else:
            assert "r/linear/focal, penalty 0.1: " in out and "36 points in tables/cardinality.parquet" in out
