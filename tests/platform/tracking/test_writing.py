"""Real MLflow on sqlite: what is written, and that nothing appears twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import feeds
import pytest
from feeds import copy_database, fill, start_feed
from made_records import filled
from made_records import make_record as record
from mlflow import MlflowClient

from topk_platform import Study
from topk_platform.records.files import artifact_name, write_artifact
from topk_platform.records.ledger import Ledger
from topk_platform.records.rows import Row, RowViews
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import epoch_rows, trial_row
from topk_platform.specs import EpochRecord
from topk_platform.tracking import trials, writing
from topk_platform.tracking.feed import check_tracking, sync, tracking_uri
from topk_platform.tracking.writing import Experiment, make_database

PARAMETERS = {"learning_rate": "0.1", "k": "3", "epochs": "2", "batch_size": "64", "optimizer": "sgd"}


def opened(folder: Path, ledger: Ledger) -> tuple[Experiment, list[str]]:
    """A study's experiment in the store's own database, and the keys of the ledger's trials that it has."""
    copy_database(tracking_uri(folder))
    experiment = Experiment(ledger, tracking_uri(folder), folder)
    return experiment, [row["key"] for row in ledger.rows() if experiment.has(row)]


def trials_of(ledger: Ledger) -> list[tuple[Row, list[Row]]]:
    """The rows of the ledger's trials, each with those of its epochs."""
    epochs = [*RowViews(ledger.read("epochs"))]
    return [(row, [epoch for epoch in epochs if epoch["key"] == row["key"]]) for row in ledger.rows()]


def runs(folder: Path, tag: str = "topk.key") -> list[Any]:
    """The runs of trials in a store's own database, or those with another tag."""
    return feeds.runs(tracking_uri(folder), tag)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_network_is_logged_under_a_name_that_mlflow_takes_unless_it_is_damaged(
    damaged: bool, tmp_path: Path, study: Study, caplog: pytest.LogCaptureFixture
) -> None:
    dotted = replace(study.arms[0].loss, label="tau-0.1")  # MLflow takes no such model's name
    arms = [replace(study.arms[0], loss=dotted)]
    study = replace(study, arms=arms, baseline=dotted.label)
    ledger, confirmed = filled(tmp_path, study), record(study, 0, seed=1)
    written = write_artifact(ledger.store, "network", confirmed.trial.key, b"weights")
    confirmed = replace(confirmed, artifacts={"network": written})
    if damaged:
        ledger.store.write(artifact_name("network", confirmed.trial.key), b"wejghts")
    filled(tmp_path, study, confirmed)
    fill(start_feed(tmp_path, ledger), {"table.md": "# one"})
    (run,) = runs(tmp_path)
    assert run.info.status == "FINISHED"
    if damaged:
        assert not run.outputs or not run.outputs.model_outputs
        assert f"MLflow gets no network of {confirmed.trial.arm.name}: store " in caplog.text
        return
    (model,) = run.outputs.model_outputs
    assert (
        MlflowClient(tracking_uri(tmp_path)).get_logged_model(model.model_id).name == "r-mlp-tau-0-1 seed 1"
    )


def test_more_values_than_mlflow_takes_at_once_are_all_written(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow takes 100 parameters in one request, and 1,000 values in all."""
    ledger = filled(tmp_path, study, record(study, 0, seed=1))
    (trial,) = trials_of(ledger)
    parameters = {f"p{number}": str(number) for number in range(250)}
    metrics = {f"m{number}": float(number) for number in range(1200)}
    monkeypatch.setattr(writing, "parameters", lambda _: parameters)
    monkeypatch.setattr(writing, "values", lambda *_: [(*metric, 0, 0) for metric in metrics.items()])
    experiment, held = opened(tmp_path, ledger)
    assert not held
    experiment.write_trial(*trial)
    arm = {"metric": "top3", "parameters": parameters, "metrics": metrics, "note": ""}
    experiment.write_tables({"table.md": "# one", "arms.json": json.dumps({trial[0]["arm_id"]: arm})})
    written = [r.data for r in runs(tmp_path, "") if r.data.tags.get("topk.parent") != "study"]
    assert [len(data.params) for data in written] == [250, 250]
    assert all(data.metrics.items() >= metrics.items() for data in written)


def test_no_trial_is_listed_less_because_another_was_cut_off(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server gives runs page by page; here a page has two."""
    ledger = filled(tmp_path, study, *(record(study, number) for number in range(5)))
    assert start_feed(tmp_path, ledger).close() == ""
    client = MlflowClient(tracking_uri(tmp_path))
    cut_off = runs(tmp_path)[0]  # on the first page
    client.update_run(cut_off.info.run_id, status="RUNNING")
    search = MlflowClient.search_runs

    def two(*given: Any, **more: Any) -> Any:
        return search(*given, **{**more, "max_results": 2})

    monkeypatch.setattr(MlflowClient, "search_runs", two)
    _, listed = opened(tmp_path, ledger)
    assert sorted([*listed, cut_off.data.tags["topk.key"]]) == ledger.keys()


def test_a_trial_that_two_processes_wrote_is_there_once_in_the_end(tmp_path: Path, study: Study) -> None:
    """`topk sync` may fill MLflow while a run does so."""
    ledger = filled(tmp_path, study, record(study, 0))
    two = opened(tmp_path, ledger), opened(tmp_path, ledger)
    for experiment, held in two:
        assert not held
        experiment.write_trial(*trials_of(ledger)[0])
    assert len(runs(tmp_path)) == 2
    assert start_feed(tmp_path, ledger).close() == ""
    (child,) = runs(tmp_path)
    (arm,) = runs(tmp_path, "topk.parent")
    assert child.data.tags["mlflow.parentRunId"] == arm.info.run_id


@pytest.mark.parametrize("cut_off_at", ["log_batch", "set_terminated"])
def test_a_trial_that_a_kill_cuts_off_is_not_listed_and_appears_once_in_the_end(
    cut_off_at: str, tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = filled(tmp_path, study, *(record(study, number) for number in range(2)))
    experiment, _ = opened(tmp_path, ledger)
    first, second = trials_of(ledger)
    experiment.write_trial(*first)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, cut_off_at, Mock(side_effect=ArithmeticError("killed")))
        with pytest.raises(ArithmeticError):
            experiment.write_trial(*second)
    experiment, held = opened(tmp_path, ledger)
    assert held == [first[0]["key"]]
    experiment.write_trial(*second)
    assert sorted(run.data.tags["topk.key"] for run in runs(tmp_path)) == ledger.keys()


def test_a_trial_that_the_ledger_has_no_more_is_gone(tmp_path: Path, study: Study) -> None:
    """A failed trial that is trained again has the same key."""
    ledger = filled(tmp_path, study, *(record(study, number) for number in range(2)))
    assert start_feed(tmp_path, ledger).close() == ""
    first, second = trials_of(ledger)
    with ledger.writing(study) as writer:
        writer.table.delete([first[0]["key"]])
    experiment, held = opened(tmp_path, ledger)
    assert held == [run.data.tags["topk.key"] for run in runs(tmp_path)] == [second[0]["key"]]
    experiment.write_trial(*first)
    assert len(runs(tmp_path)) == 2


def test_a_database_may_have_options(tmp_path: Path) -> None:
    copy_database(f"sqlite:///{tmp_path / 'mlflow.db'}")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}?timeout=60"
    check_tracking(uri)
    Experiment(Ledger.open(Store.open(tmp_path), "s"), uri, None)
    assert [path.name for path in tmp_path.iterdir() if path.name != "s"] == ["mlflow.db"]


@pytest.mark.parametrize("kept", [0.75, 0.25])
def test_a_run_has_the_validation_of_the_weights_that_were_kept(
    kept: float, tmp_path: Path, study: Study
) -> None:
    """`Recipe(keep=...)` keeps those of an epoch that may not be the last one, whose value is 0.5 here."""
    ledger = filled(tmp_path, study, replace(record(study, 0), validation=dict.fromkeys(study.metrics, kept)))
    assert start_feed(tmp_path, ledger).close() == ""
    (run,) = runs(tmp_path)
    assert run.data.metrics["final.top3"] == kept
    history = MlflowClient(tracking_uri(tmp_path)).get_metric_history(run.info.run_id, "validation.top3")
    assert sorted((one.step, one.value) for one in history) == [(1, 0.5), (2, 0.5)]


def test_a_trial_that_did_not_complete_is_never_among_the_best(tmp_path: Path, study: Study) -> None:
    statuses = ("pruned", "diverged", "failed", "completed")
    ended = [record(study, number, status=status) for number, status in enumerate(statuses)]
    ledger = filled(tmp_path, study, *ended)
    assert start_feed(tmp_path, ledger).close() == ""
    (best,) = feeds.runs(tracking_uri(tmp_path), where="metrics.`final.top3` > 0")
    assert (
        best.data.tags["topk.status"] == "completed"
        and best.info.run_name == f"{ended[0].trial.arm.name} search 3"
    )
    assert {run.info.run_name.split()[-1] for run in runs(tmp_path)} == set("0123")
    assert all("validation.top3" in run.data.metrics for run in runs(tmp_path))


def test_a_curve_has_at_most_120_values_of_equally_spaced_epochs_up_to_the_last(study: Study) -> None:
    ended = record(study, 0)
    metrics = dict.fromkeys(study.metrics, 0.5)
    epochs = tuple(EpochRecord(e, 1.0, metrics, 1.0, 0.1) for e in range(1, 101))
    row, rows = trial_row(ended), epoch_rows(replace(ended, epochs=epochs))
    shown = [value for value in trials.values(row, "top3", rows) if value[3]]
    assert {name for name, *_ in shown} == {
        "train.loss",
        "learning_rate",
        "validation.top1",
        "validation.top3",
    }
    steps = sorted({step for *_, step in shown})
    assert len(shown) <= 120 and steps[-1] == 100 and max(b - a for a, b in pairwise(steps)) <= 4
    began = int(1000 * row["started"].timestamp())
    assert {clock - began - 1000 * step for *_, clock, step in shown} == {0}


def test_mlflow_holds_what_the_ledger_holds_once(tmp_path: Path, study: Study) -> None:
    ledger = filled(tmp_path, study, record(study, 0))
    with ledger.writing(study) as writer:
        first = start_feed(tmp_path, ledger)
        confirmed = record(study, 0, seed=1)
        written = write_artifact(ledger.store, "network", confirmed.trial.key, b"weights")
        confirmed = replace(confirmed, artifacts={"network": written})
        for ended in (confirmed, record(study, 1, status="diverged")):
            writer.put(ended)
            first.put(ended)
        writer.flush()
        fill(first, {"table.md": "# one"})
    children = {run.data.tags["topk.key"]: run for run in runs(tmp_path)}
    assert set(children) == {row["key"] for row in ledger.rows()}
    run = children[confirmed.trial.key]
    assert run.info.status == "FINISHED"
    assert run.data.params.items() >= PARAMETERS.items()
    assert run.data.metrics["test.top3"] == 0.5
    assert [run.data.tags[f"topk.{name}"] for name in ("phase", "seed", "status")] == [
        "confirm",
        "1",
        "completed",
    ]
    assert sorted(c.info.status for c in children.values()) == ["FAILED", "FINISHED", "FINISHED"]
    assert [run.info.start_time, run.info.end_time] == [1_000_000, 1_001_000]
    client = MlflowClient(tracking_uri(tmp_path))
    steps = [m.step for m in client.get_metric_history(run.info.run_id, "train.loss")]
    assert sorted(steps) == [1, 2]
    folder = tmp_path / "mlflow-artifacts" / ledger.identity / run.info.run_id / "artifacts"
    assert run.info.artifact_uri == f"mlflow-artifacts:/{ledger.identity}/{run.info.run_id}/artifacts"
    assert sorted(path.name for path in folder.iterdir()) == ["trial.json"]
    (output,) = client.get_run(run.info.run_id).outputs.model_outputs
    model = tmp_path / "mlflow-artifacts" / ledger.identity / "models" / output.model_id / "artifacts"
    assert (model / "model.safetensors").read_bytes() == b"weights"
    assert client.get_logged_model(output.model_id).params == run.data.params
    parents = {run.data.tags["mlflow.parentRunId"] for run in children.values()}
    assert len(parents) == 1


@pytest.mark.slow
def test_a_store_that_was_moved_still_opens(tmp_path: Path, study: Study) -> None:
    """In MLflow's own server, as `topk ui` starts it."""
    filled(tmp_path / "old", study, record(study, 0))
    sync("s", store=tmp_path / "old")
    run = runs(tmp_path / "old")[0]
    folder = run.info.artifact_uri.removeprefix("mlflow-artifacts:/")
    (tmp_path / "old").rename(tmp_path / "new")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "from topk_platform.cli import main; main()"
    command = [sys.executable, "-c", code, "ui", "--store", str(tmp_path / "new"), "--port", str(port)]
    server = subprocess.Popen(command, start_new_session=True)
    try:
        content = fetched(port, f"/api/2.0/mlflow-artifacts/artifacts/{folder}/trial.json")
        assert json.loads(content)["study"] == "s"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def fetched(port: int, path: str) -> bytes:
    """What a server answers once it does."""
    end = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return bytes(answer.read())
        except urllib.error.URLError:
            assert time.monotonic() < end, "no server came up"
            time.sleep(0.2)


def test_a_deleted_experiment_is_left_alone_and_a_new_one_is_filled(tmp_path: Path, study: Study) -> None:
    """A renamed one is still the study's. MLflow keeps the names of deleted experiments."""
    copy_database(tracking_uri(tmp_path))
    ledger, client = filled(tmp_path, study, record(study, 0)), MlflowClient(tracking_uri(tmp_path))
    for name in ("s", "s (2)", "s (3)"):
        for table in ("# one", "# two"):
            fill(start_feed(tmp_path, ledger), {"table.md": table})
            (own,) = (e for e in client.search_experiments() if e.name != "Default")
            assert own.name in {name, "mine"}
            assert len(client.search_runs([own.experiment_id])) == 3  # an arm, its trial, and the study
            if own.name == name:
                client.rename_experiment(own.experiment_id, "mine")
        client.rename_experiment(own.experiment_id, name)
        client.delete_experiment(own.experiment_id)


@pytest.mark.slow
def test_studies_of_one_name_on_one_server_never_touch_each_other(tmp_path: Path, study: Study) -> None:
    """Two colleagues run `digits`, each in a store of their own."""
    ledgers = [filled(tmp_path / name, study, record(study, n)) for n, name in enumerate(("mine", "yours"))]
    for ledger in ledgers:
        fill(start_feed(tmp_path, ledger), {"table.md": "# one"})
    with ledgers[0].writing(study) as writer:
        writer.table.delete(ledgers[0].keys())
    assert start_feed(tmp_path, ledgers[0]).close() == ""
    for name, ledger in zip(("s", "s (2)"), ledgers, strict=True):
        result = feeds.runs(tracking_uri(tmp_path), "topk.key", name)
        assert sorted(run.data.tags["topk.key"] for run in result) == ledger.keys()


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("other", ["", "made meanwhile", "made before it was looked for"])
def test_a_database_is_made_unless_another_run_has_made_it(
    links: bool, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two studies begin in one new store. Making a database takes seconds, and the first run writes to its own."""
    if other.endswith("looked for"):
        monkeypatch.setattr(Path, "exists", Mock(side_effect=[False, True]))
    if not links:  # on this file system
        monkeypatch.setattr(Path, "hardlink_to", Mock(side_effect=PermissionError))
    path = tmp_path / "mlflow.db"

    def client(tracking_uri: str) -> None:
        Path(tracking_uri.removeprefix("sqlite:///")).write_text("ours")
        if other:
            path.write_text("theirs")

    monkeypatch.setattr("topk_platform.tracking.writing.MlflowClient", client)
    make_database(tracking_uri(tmp_path))
    assert path.read_text() == ("theirs" if other else "ours") and [*tmp_path.iterdir()] == [path]


def test_a_driver_that_is_killed_while_mlflow_makes_its_tables_leaves_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topk_platform.tracking.writing.MlflowClient", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        make_database(tracking_uri(tmp_path))
    assert not list(tmp_path.iterdir())
