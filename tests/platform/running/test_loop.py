"""What a driver holds while its trials run."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid, run
from topk_platform.records.rows import Row, RowViews
from topk_platform.records.writer import Writer
from topk_platform.running.cluster.lifeline import Cluster
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.running.summary import Outcome
from topk_platform.testing import fake_run
from topk_platform.tracking import writing
from topk_platform.tracking.feed import sync


def a_study(seeds: int) -> Study:
    losses = [Loss("cross_entropy", space={"learning_rate": Float(0.01, 1.0)}, first={"learning_rate": 0.1})]
    arms = grid([Regime("clean", "digits")], [Model("linear")], losses, k=3, recipe=Recipe(1))
    return Study("s", arms, topk=(3,), trials=2, seeds=seeds)


def rows_held() -> int:
    """Return how many rows of tables are in memory; each of them keeps its whole table there."""
    row = type(next(iter(RowViews(pa.table({"key": ["a"]})))))
    gc.collect()
    return sum(issubclass(type(one), row) for one in gc.get_objects())  # a dead proxy has a type, too


def test_it_frees_the_rows_of_the_trials_that_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study of a million trials has some gigabytes of them."""
    ended = a_study(seeds=2)
    fake_run(ended, tmp_path, lambda trial: 0.5, identities=check_study(ended))
    before, held = rows_held(), list[int]()

    def train(*_: Any) -> Outcome:
        held.append(rows_held() - before)
        return Outcome()

    monkeypatch.setattr("topk_platform.running.cluster.nodes.on_cluster", lambda *_: nullcontext(Cluster()))
    monkeypatch.setattr("topk_platform.running.tuner.tune_trials", train)
    summary = run(a_study(seeds=3), store=tmp_path, mlflow="none", progress=False, mixed=True)
    assert (summary.left, held) == (1, [0])  # the trials that have ended count


def test_what_another_run_has_trained_again_meanwhile_is_not_trained_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This run found damaged ranks, then waited for a cluster; only then it holds the ledger."""
    study = a_study(seeds=2)
    store = fake_run(study, tmp_path, lambda trial: 0.5, identities=check_study(study)).store
    name = f"ranks/{store.names('ranks')[0]}"
    sound = store.read(name)
    store.write(name, b"")

    def join(*_: Any) -> nullcontext[Cluster]:
        store.write(name, sound)
        return nullcontext(Cluster())

    monkeypatch.setattr("topk_platform.running.cluster.nodes.on_cluster", join)
    monkeypatch.setattr("topk_platform.running.tuner.tune_trials", lambda *_: Outcome())
    summary = run(study, store=tmp_path, mlflow="none", progress=False, mixed=True)
    assert (summary.left, store.folders("damaged"), store.exists(name)) == (0, [], True)


@pytest.mark.parametrize(("seeds", "kept"), [(None, []), (1, ["dead"])])
def test_a_finished_study_keeps_no_checkpoints(seeds: int | None, kept: list[str], tmp_path: Path) -> None:
    """Those of trials that no longer count, since the code has changed, never end. A part of a study leaves them."""
    study = a_study(seeds=2)
    store = fake_run(study, tmp_path, lambda trial: 0.5, identities=check_study(study)).store
    for key in ("dead", store.names("ranks")[0].partition(".")[0]):
        store.write(
            f"checkpoints/{key}/000000000001.ckpt", b"of code that is gone, and of a trial that has ended"
        )
    summary = run(study, store=tmp_path, seeds=seeds, mlflow="none", progress=False, mixed=True)
    assert (summary.left, store.folders("checkpoints")) == (0, kept)


class Slow:
    """An experiment that takes long to get the study's tables, and is interrupted as soon as it begins."""

    enough, files = threading.Event(), dict[str, str]()

    def __init__(self, *_: object) -> None: ...

    def has(self, _row: Row) -> bool:
        return True

    def remove(self, keys: Collection[str]) -> None: ...

    def write_tables(self, files: Mapping[str, str], pictures: object) -> None:
        if not self.enough.is_set():
            os.kill(os.getpid(), signal.SIGINT)
        self.enough.wait()
        self.files.update(files)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(
    "first", [Mock(return_value=Outcome(interrupted=True)), Mock(side_effect=KeyboardInterrupt)]
)
def test_a_second_signal_ends_the_wait_for_mlflow_and_loses_nothing(
    first: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a first one while trials run, or before Tune hears it."""
    Slow.enough.clear()
    Slow.files.clear()
    ended = a_study(seeds=2)
    fake_run(ended, tmp_path, lambda trial: 0.5, identities=check_study(ended))
    monkeypatch.setattr("topk_platform.running.cluster.nodes.on_cluster", lambda *_: nullcontext(Cluster()))
    monkeypatch.setattr(writing, "Experiment", Slow)
    monkeypatch.setattr("topk_platform.running.tuner.tune_trials", first)
    monkeypatch.setattr(Writer, "hurry", hurry := Mock())
    said = list[str]()
    with pytest.raises(KeyboardInterrupt):
        run(a_study(seeds=3), store=tmp_path, progress=False, mixed=True, waiting=said.append)
    assert not Slow.files and hurry.called
    Slow.enough.set()
    assert said[-1].startswith(
        "Interrupted: MLflow gets what it lacks, which can take minutes. Another signal"
    )
    assert f"`topk sync s --store {tmp_path}` or the next run fills it in" in said[-1]
    sync("s", store=tmp_path)
    assert "table.md" in Slow.files
