"""The outcome depends on seeds alone: not on workers, kills, or the order in which things were asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from topk_platform.records import Ledger, Store

Topk = Callable[..., subprocess.CompletedProcess[str]]
Content = Callable[[Path], dict[str, list[dict[str, Any]]]]


def test_one_worker_and_two_give_the_same_ledger(
    reference: Path, topk: Topk, content: Content, tmp_path: Path
) -> None:
    topk("run", "my_lab:study", "--store", tmp_path, "--workers", "1")
    assert content(tmp_path) == content(reference)


def test_killed_and_run_again_it_ends_as_if_nothing_had_happened(
    reference: Path,
    topk: Topk,
    start: Callable[..., subprocess.Popen[bytes]],
    content: Content,
    tmp_path: Path,
) -> None:
    started: dict[str, datetime] = {}
    for enough in (1, 7):
        process = start("run", "my_lab:study", "--store", tmp_path, "--workers", "2")
        wait_for_trials(tmp_path, enough, process)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for key, when in rows_started(tmp_path).items():
            assert started.setdefault(key, when) == when, "a finished trial was repeated"
    done = topk("run", "my_lab:study", "--store", tmp_path, "--workers", "2")
    assert len(started) >= 7
    assert rows_started(tmp_path).items() >= started.items()
    assert f"{16 - len(started)} trials ran" in done.stdout
    assert content(tmp_path) == content(reference)
    table = ("table", "my_lab:study", "--format", "csv", "--store")
    assert topk(*table, tmp_path).stdout == topk(*table, reference).stdout
    assert set(mlflow_keys(tmp_path).values()) == {1}
    assert set(mlflow_keys(tmp_path)) == set(mlflow_keys(reference))


@pytest.mark.slow
def test_a_trial_killed_in_its_middle_goes_on_from_its_checkpoint(
    topk: Topk,
    start: Callable[..., subprocess.Popen[bytes]],
    content: Content,
    tmp_path: Path,
) -> None:
    topk("run", "my_lab:long", "--store", tmp_path / "calm")
    process = start("run", "my_lab:long", "--store", tmp_path / "killed", "--checkpoints", "0")
    wait_for(lambda: any(step >= 345 for step in checkpoints(tmp_path / "killed")), process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    killed = datetime.now(UTC)
    assert not rows_started(tmp_path / "killed")
    assert "1 trials ran" in topk("run", "my_lab:long", "--store", tmp_path / "killed").stdout
    (began,) = rows_started(tmp_path / "killed").values()
    assert began < killed, "it started anew"
    assert content(tmp_path / "killed") == content(tmp_path / "calm")
    assert not checkpoints(tmp_path / "killed")


@pytest.mark.slow
def test_more_trials_and_one_more_loss_only_add_what_is_missing(
    reference: Path, topk: Topk, content: Content, tmp_path: Path
) -> None:
    topk("run", "my_lab:study", "--store", tmp_path, "--trials", "4", "--only", "*/smooth_topk_svm")
    small = rows_started(tmp_path)
    assert len(small) == 4 + 2
    topk("run", "my_lab:wider", "--store", tmp_path, "--only", "*s*_topk_svm")
    topk("run", "my_lab:wider", "--store", tmp_path)
    after = rows_started(tmp_path)
    assert after.items() >= small.items()
    of_reference = {row["key"] for row in content(reference)["trials"]}
    assert of_reference <= set(after)
    extra = [row for row in content(tmp_path)["trials"] if row["key"] not in of_reference]
    # The added loss, and perhaps confirmations of what was best of four trials.
    assert Counter(row["loss"] for row in extra)["ldam"] == 6 + 2
    assert all(row["phase"] == "confirm" for row in extra if row["loss"] != "ldam")
    table = topk("table", "my_lab:wider", "--store", tmp_path, "--format", "csv").stdout
    whole = topk("table", "my_lab:study", "--store", reference, "--format", "csv").stdout
    numbers = {tuple(line.split(",")[:6]) for line in whole.splitlines()}
    assert numbers <= {tuple(line.split(",")[:6]) for line in table.splitlines()}


def wait_for_trials(store: Path, enough: int, process: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: len(rows_started(store)) >= enough, process)


def checkpoints(store: Path) -> list[int]:
    """The steps of which there are checkpoints; an epoch has 17."""
    return [int(path.stem) for path in (store / "small" / "checkpoints").glob("*/*.ckpt")]


def wait_for(reached: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while not reached():
        assert process.poll() is None, "the study ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.02)


def rows_started(store: Path) -> dict[str, datetime]:
    return {row["key"]: row["started"] for row in Ledger.open(Store.open(store), "small").rows()}


def mlflow_keys(store: Path) -> Counter[str]:
    client = MlflowClient(f"sqlite:///{store / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("small").experiment_id], max_results=1000)
    return Counter(run.data.tags["topk.key"] for run in runs if "topk.key" in run.data.tags)
