"""The files in a study's ``tables`` folder: of the whole study, whichever part ran and however it ended."""

from __future__ import annotations

import csv
import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
from driven import run_in_process
from made_records import keep_made_up

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid, plan, run, table
from topk_platform.errors import StoreError, UserError
from topk_platform.records.storage.store import Store
from topk_platform.running import recording
from topk_platform.running import tuner as tuning
from topk_platform.specs import EpochRecord, Trial, TrialRecord

RATE = {"learning_rate": Float(0.01, 1)}
LOSSES = [Loss(name, RATE, {"learning_rate": 0.1}) for name in ("cross_entropy", "smooth_topk_svm")]
REGIMES = [Regime("a", "digits"), Regime("b", "digits")]
STUDY = Study(
    "s", grid(REGIMES, [Model("linear")], LOSSES, k=3, recipe=Recipe(1)), topk=(1, 3), trials=2, seeds=3
)


class TroubleError(Exception):
    pass


def score(trials: Sequence[Trial], store: Store) -> Iterator[TrialRecord]:
    """Return made-up results of trials, which differ between seeds alone."""
    for trial in trials:
        metrics = dict.fromkeys((*STUDY.metrics, trial.arm.metric), 0.5 + trial.seed / 100)
        epochs = (EpochRecord(1, 1.0, metrics, 0.5, 0.1),)
        record = TrialRecord(
            trial, "completed", validation=metrics, test=metrics if trial.seed else None, epochs=epochs
        )
        yield dataclasses.replace(record, artifacts=keep_made_up(store, trial))


def end_in_trouble(patch: pytest.MonkeyPatch) -> None:
    """Let a run raise an error after its last trial."""
    run_in_process(patch, score)
    train_all = tuning.tune_trials

    def tune(*arguments: Any) -> None:
        train_all(*arguments)
        raise TroubleError("the first error")

    patch.setattr(tuning, "tune_trials", tune)


@pytest.fixture(autouse=True)
def without_ray_and_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    run_in_process(monkeypatch, score)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the study has run."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        run_in_process(patch, score)
        assert run(STUDY, store=folder).ran == STUDY.size
    return folder


@pytest.fixture
def ended(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path, dirs_exist_ok=True))


def written(store: Path, name: str = "table.csv") -> list[dict[str, str]]:
    with (store / "s" / "tables" / name).open() as file:
        return list(csv.DictReader(file))


def cells(store: Path) -> dict[tuple[str, str], str]:
    return {(r["regime"], r["loss"]): r["n"] for r in written(store) if r["metric"] == "top3"}


def test_a_smaller_budget_hides_nothing_that_has_ended_and_a_larger_one_counts_once_it_has(
    ended: Path,
) -> None:
    def seeds(study: Study = STUDY) -> set[int]:
        return {cell.value.n for cell in table(study, store=ended).cells.values() if cell.value}

    assert run(STUDY, store=ended, seeds=2).ran == 0
    assert seeds() == {3} and seeds(STUDY.with_budget(seeds=2)) == {2}
    run(STUDY, store=ended, seeds=4, max_trials=1)
    run(STUDY, store=ended, seeds=3)
    assert seeds() == {3} and not table(STUDY, store=ended).left
    run(STUDY, store=ended, searches=2)
    assert table(STUDY, store=ended).study.searches == 2 and not table(STUDY, store=ended).left


def test_networks_are_compared_with_the_first_one_as_a_family_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same loss and regime, corrected for one another, and named in the answer."""

    def ahead(trials: Sequence[Trial], store: Store) -> Iterator[TrialRecord]:
        for record in score(trials, store):
            gain = 0.2 * (record.trial.arm.model.label == "mlp" and record.trial.arm.regime.name == "a")
            test = {
                name: value + gain + record.trial.seed**2 / 1000 * gain
                for name, value in (record.test or {}).items()
            }
            yield dataclasses.replace(record, test=test or None)

    run_in_process(monkeypatch, ahead)
    networks = [Model("linear"), Model("mlp")]
    study = Study(
        "n", grid(REGIMES, networks, [Loss("cross_entropy")], k=3, recipe=Recipe(1)), topk=(1, 3), seeds=4
    )
    shown = run(study, store=tmp_path).table
    marks = {key: (cell.mark, cell.family_size) for key, cell in shown.network_cells.items()}
    assert marks == {
        ("a/mlp/cross_entropy", "linear", "top3"): ("better", 2),
        ("b/mlp/cross_entropy", "linear", "top3"): ("", 0),
    }
    assert "Beside network linear, better: a/mlp/cross_entropy by 20." in " ".join(str(shown).split())
    assert not table(study, store=tmp_path, only="b/*").network_cells.keys() - {
        ("b/mlp/cross_entropy", "linear", "top3")
    }


def test_what_a_part_runs_is_written_beside_what_others_ran(tmp_path: Path) -> None:
    run(STUDY, store=tmp_path, only="a/*")
    part = run(STUDY, store=tmp_path, only=["b/*/cross_entropy", "b/*/smooth*"], seeds=2).table
    assert part.columns == ("b",)
    assert {cell.value.n for cell in part.cells.values() if cell.value} == {2}
    expected = {("a", "cross_entropy"): "3", ("a", "smooth_topk_svm"): "3"}
    expected |= {("b", "cross_entropy"): "2", ("b", "smooth_topk_svm"): "2"}
    assert cells(tmp_path) == expected
    text = (tmp_path / "s" / "tables" / "table.md").read_text()
    assert {line.split(" | ")[0] for line in text.splitlines() if "| cross_entropy |" in line} == {
        "| a",
        "| b",
    }
    assert len(written(tmp_path, "seeds.csv")) == 2 * 3 + 2 * 2


def test_a_part_shows_its_difference_to_a_baseline_that_ran_before(tmp_path: Path) -> None:
    run(STUDY, store=tmp_path, only="a/*/cross_entropy")
    result = run(STUDY, store=tmp_path, only="a/*/smooth*").table
    difference = result.cells["smooth_topk_svm", "a", "top3"].difference
    assert difference is not None and (difference.n, difference.mean) == (3, 0)


def test_a_larger_budget_for_once_does_not_change_what_the_files_are_of(ended: Path) -> None:
    before = (ended / "s" / "tables" / "table.csv").read_bytes()
    assert run(STUDY, store=ended, seeds=5).table.study.seeds == 5
    assert (ended / "s" / "tables" / "table.csv").read_bytes() == before


def test_a_study_that_selects_by_a_new_metric_trains_anew_in_the_same_store(tmp_path: Path) -> None:
    """The ledger has no column of that metric before the new run has written a trial."""
    run(STUDY, store=tmp_path, only="a/*")
    arms = [dataclasses.replace(arm, k=2) for arm in STUDY.arms]
    changed = dataclasses.replace(STUDY, arms=arms, topk=(1, 2, 3))
    assert plan(changed, store=tmp_path, only="a/*").left == STUDY.size // 2
    assert run(changed, store=tmp_path, only="a/*").ran == STUDY.size // 2
    assert run(changed, store=tmp_path, only="a/*").ran == 0


def test_the_sink_gets_the_tables_and_what_draws_them_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is handed draws the whole study, whatever part ran."""
    sink = Mock()
    sink.return_value.close.return_value = ""

    def made(study: Study, store: str) -> dict[str, bytes]:
        return {arm.regime.name: store.encode() for arm in study.arms}

    monkeypatch.setattr("topk_platform.running.loop.mlflow_of", lambda *_: "http://none")
    monkeypatch.setattr("topk_platform.running.loop.Feed", sink)
    monkeypatch.setattr(recording, "_draw", made)
    for choice in ("on", "off"):
        monkeypatch.setenv("TOPK_REPORT", choice)
        run(STUDY, store=tmp_path, only="a/*")
    (*_, pictures), (*_, none) = (made.args for made in sink.call_args_list)
    assert "table.md" in sink.return_value.close.call_args.args[0] and none is None
    assert pictures() == {name: str(tmp_path).encode() for name in ("a", "b")}
    monkeypatch.setenv("TOPK_REPORT", "yes")
    with pytest.raises(UserError, match="TOPK_REPORT must be on or off, got 'yes'"):
        run(STUDY, store=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_after_an_error_what_had_ended_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_in_trouble(monkeypatch)
    with pytest.raises(TroubleError, match="the first error"):
        run(STUDY, store=tmp_path)
    assert set(cells(tmp_path).values()) == {"3"}


@pytest.mark.parametrize("broken", ["build_table", "write"])
def test_an_error_of_the_tables_does_not_take_the_first_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    original = Store.write

    def no_tables(self: Store, name: str, data: bytes) -> None:
        if name.startswith("tables/"):
            raise StoreError("no space left")
        original(self, name, data)

    end_in_trouble(monkeypatch)
    if broken == "write":
        monkeypatch.setattr(Store, "write", no_tables)
    else:
        monkeypatch.setattr(recording, "build_table", Mock(side_effect=StoreError("no space left")))
    with pytest.raises(TroubleError, match="the first error") as caught:
        run(STUDY, store=tmp_path)
    assert "no space left" in caught.value.__notes__[0]
    run_in_process(monkeypatch, score)
    with pytest.raises(StoreError, match="no space left"):  # of a run in order it is the only one
        run(STUDY, store=tmp_path)


def test_rows_count_by_the_study_as_it_is_now_though_nothing_runs(ended: Path) -> None:
    def counting() -> int:
        return sum(pq.read_table(ended / "s" / "tables" / "trials.parquet")["counts"].to_pylist())

    assert counting() == STUDY.size
    fewer = dataclasses.replace(STUDY, seeds=2)
    assert run(fewer, store=ended).ran == 0
    assert counting() == fewer.size < STUDY.size


def sizes(store: Path) -> dict[str, int]:
    """Return the numbers of rows of the files that a run writes only if they have changed."""
    names = ("trials", "epochs", "classes")
    return {name: pq.read_metadata(store / "s" / "tables" / f"{name}.parquet").num_rows for name in names}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "missing"), [(None, "classes.parquet"), (None, "epochs.parquet"), (5, "table.csv")]
)
def test_files_that_a_run_could_not_write_are_written_by_the_next_though_nothing_runs(
    seeds: int | None, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that is cut off has ended counting trials, or only trials beyond the study's budget."""
    original = Store.write

    def cut_off(self: Store, name: str, data: bytes) -> None:
        if name == f"tables/{missing}":
            raise TroubleError
        original(self, name, data)

    run(STUDY, store=tmp_path / "whole", seeds=seeds)
    run(STUDY, store=tmp_path / "cut", only=None if seeds else "a/*")
    monkeypatch.setattr(Store, "write", cut_off)
    with pytest.raises(TroubleError):
        run(STUDY, store=tmp_path / "cut", seeds=seeds)
    monkeypatch.setattr(Store, "write", original)
    assert run(STUDY, store=tmp_path / "cut").ran == 0
    assert sizes(tmp_path / "cut") == sizes(tmp_path / "whole")


def test_results_by_class_go_when_no_confirmation_counts_any_more(ended: Path) -> None:
    assert sizes(ended)["classes"] > 0
    longer = dataclasses.replace(
        STUDY, arms=[dataclasses.replace(arm, recipe=Recipe(2)) for arm in STUDY.arms]
    )
    assert run(longer, store=ended, max_trials=1).ran == 1
    assert sizes(ended)["classes"] == 0


def test_a_run_in_which_nothing_has_changed_writes_no_snapshot(
    ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "write_snapshot", Mock(side_effect=TroubleError))
    assert run(STUDY, store=ended).ran == 0


@pytest.mark.slow
def test_a_run_that_may_not_go_on_says_so_in_its_table_and_the_same_command_goes_on(
    tmp_path: Path,
) -> None:
    left = STUDY.size
    for ran in (7, 12, 1):
        summary = run(STUDY, store=tmp_path, max_trials=ran if ran > 1 else 100)
        left -= summary.ran
        assert (summary.left, summary.outcome.interrupted) == (left, False)
        assert summary.outcome.partial == (f"max_trials {ran}" if left else "")
        assert (f"Partial: {left} trial" in (tmp_path / "s/tables/table.md").read_text()) == (left > 0)
    assert summary.ran == 1 and summary.table.left == 0
