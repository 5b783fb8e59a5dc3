"""A study as one file: what it holds, and that whatever was changed in it is found."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from topk_platform import (
    Arm,
    Claim,
    Contrast,
    Float,
    Loss,
    Model,
    Published,
    Racing,
    Recipe,
    Regime,
    Study,
    UserError,
    bundle,
    verify,
)
from topk_platform.cli import main
from topk_platform.evidence import Bundle
from topk_platform.specs import LabelNoise
from topk_platform.testing import fake_run

RATE = {"learning_rate": Float(0.01, 1, log=True)}


def made() -> Study:
    losses = [Loss(name, RATE, {"learning_rate": 0.1}) for name in ("cross_entropy", "smooth_topk_svm")]
    regime = Regime("noisy", "digits", (LabelNoise(0.2),))
    arms = [Arm(regime, Model("linear"), loss, 3, Recipe(1)) for loss in losses]
    gap = Contrast.between(arms[1].name, arms[0].name, "top3")
    claim = Claim(
        name="level", text="They are level.", source="me", contrasts=[gap], direction="within", tolerance=9
    )
    return Study("evident", arms, topk=(1, 3), trials=2, seeds=3, claims=[claim])


@pytest.fixture(scope="module")
def study() -> Study:
    return made()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, study: Study, train_study: Callable[..., None]) -> Path:
    folder = tmp_path_factory.mktemp("evidence")
    train_study(study, folder / "runs")
    first, second = (bundle(study, store=folder / "runs").to_bytes() for _ in range(2))
    assert first == second
    (folder / "study.topk").write_bytes(first)
    return folder / "study.topk"


def test_all_comes_out_the_same_from_the_file_alone(file: Path, study: Study) -> None:
    """Tables, claims and, on this machine, trials to the bit."""
    result = verify(file, again=2)
    assert result.holds
    names = {one.name for one in result.results}
    assert {"results/table.md", "results/table.csv", "results/seeds.csv", "results/claims.md"} <= names
    assert {one.outcome for one in result.results + result.trials} == {"to the bit"}
    assert len(result.trials) == 2
    assert [one.name for one in verify(file, again=2).trials] == [one.name for one in result.trials]
    assert len({one.name for one in verify(file, again=1, seed=1).trials}) == 1
    assert Bundle.read(file).study == study


def changed(file: Path, to: Path, name: str, content: bytes) -> Path:
    """Change a file of a bundle as a forger would, sum and all."""
    before = Bundle.read(file)
    sums = {**before.manifest["sha256"], name: hashlib.sha256(content).hexdigest()}
    after = dataclasses.replace(
        before, manifest={**before.manifest, "sha256": sums}, files={**before.files, name: content}
    )
    to.write_bytes(after.to_bytes())
    return to


def test_a_table_that_says_more_than_the_ledger_is_found(file: Path, tmp_path: Path) -> None:
    text = Bundle.read(file).files["results/claims.csv"].decode()
    forged = changed(file, tmp_path / "x", "results/claims.csv", text.replace("level", "ahead").encode())
    result = verify(forged)
    assert not result.holds
    (differing,) = (one for one in result.results if one.outcome == "differs")
    assert differing.name == "results/claims.csv" and "has become" in differing.why


def test_a_result_that_no_training_gives_is_found(file: Path, tmp_path: Path) -> None:
    """A ledger whose test accuracies are a tenth better fails as soon as its trials are trained."""
    before = Bundle.read(file)
    rows = pq.read_table(io.BytesIO(before.files["ledger.parquet"]), partitioning=None)
    better = [None if value is None else value + 0.1 for value in rows["test.top1"].to_pylist()]
    column = rows.column_names.index("test.top1")
    sink = io.BytesIO()
    pq.write_table(rows.set_column(column, rows.schema.field(column), [better]), sink)
    result = verify(changed(file, tmp_path / "x", "ledger.parquet", sink.getvalue()), again=100)
    confirmed = [one for one in result.trials if one.outcome == "differs"]
    assert len(confirmed) == 6 and len(result.trials) == 10
    assert all("test.top1: difference 0.1" in one.why for one in confirmed)


def test_what_is_damaged_is_reported(file: Path, tmp_path: Path) -> None:
    before = Bundle.read(file)
    broken = dataclasses.replace(before, files={**before.files, "study.json": b"{}"})
    (tmp_path / "x").write_bytes(broken.to_bytes())
    with pytest.raises(UserError, match=r"is damaged or was changed: \['study.json'\]"):
        verify(tmp_path / "x")
    (tmp_path / "y").write_bytes(b"no")
    with pytest.raises(
        UserError, match=r"must be a file of `topk bundle`, got a folder: .*`topk repair STUDY`"
    ):
        verify(tmp_path)
    with pytest.raises(UserError, match="must be a file of `topk bundle`"):
        verify(tmp_path / "y")
    with pytest.raises(UserError, match="replay and tolerance must be at least 0"):
        verify(file, again=-1)
    with pytest.raises(UserError, match="a file with a name that no bundle has"):
        verify(changed(file, tmp_path / "z", "../evil", b""))


def test_the_commands(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evident_lab.py").write_text(Path(__file__).read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    store = str(file.parent / "runs")
    codes = []
    for command in (f"bundle evident_lab:made --to x.topk --store {store}", "verify x.topk"):
        monkeypatch.setattr(sys, "argv", ["topk", *command.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        codes.append(ended.value.code or 0)
    out = capsys.readouterr().out
    assert codes == [0, 0]
    assert hashlib.sha256((tmp_path / "x.topk").read_bytes()).hexdigest() in out
    assert "result claims.md: to the bit" in out and "everything came out the same" in out


def test_a_study_of_which_no_trial_has_ended_is_a_bundle_too(tmp_path: Path) -> None:
    fake_run(made(), tmp_path / "runs", lambda _: 0.5, stop_after=0)
    (tmp_path / "x.topk").write_bytes(bundle(made(), store=tmp_path / "runs").to_bytes())
    assert verify(tmp_path / "x.topk").holds


def test_a_study_is_the_same_after_json() -> None:
    arms = made().arms
    number = Published(regime="noisy", loss="cross_entropy", metric="top1", value=50.0, source="me")
    study = dataclasses.replace(made(), published=[number], racing=Racing())
    again = Study.from_json(study.to_json())
    assert [again.arm_id(arm) for arm in again.arms] == [study.arm_id(arm) for arm in arms]
    assert again.to_json() == study.to_json()
    with pytest.raises(ValueError, match="not a study"):
        Study.from_json(json.dumps({"a": 1}))
