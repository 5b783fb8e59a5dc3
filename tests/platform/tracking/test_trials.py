"""What MLflow's runs of arms say, and networks that MLflow itself loads."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import feeds
import mlflow
import numpy as np
import pytest
import torch
from feeds import fill, start_feed
from made_records import filled, make_wider_study
from made_records import make_record as record
from mlflow import MlflowClient

from topk_platform import Study, UserError
from topk_platform.identity import Identity
from topk_platform.models import build_model
from topk_platform.records.files import artifact_name
from topk_platform.records.history import read_history
from topk_platform.records.ledger import Ledger
from topk_platform.records.networks import save_model
from topk_platform.reports.table_data import arms_to_json
from topk_platform.results.from_store import build_table
from topk_platform.results.intervals import estimate
from topk_platform.specs import Inputs
from topk_platform.tracking.feed import Pictures, run_pages, sync, tracking_uri
from topk_platform.tracking.writing import Experiment


def written(folder: Path, ledger: Ledger, arms: str) -> None:
    fill(start_feed(folder, ledger), {"arms.json": arms, "table.md": "# s"})


def runs(folder: Path, tag: str = "") -> list[Any]:
    return feeds.runs(tracking_uri(folder), tag)


def parent(folder: Path, *, of_study: bool = False) -> Any:
    """The run of the only arm, or of the study."""
    (result,) = [
        r for r in runs(folder, "topk.parent") if (r.data.tags["topk.parent"] == "study") == of_study
    ]
    return result


def arms_of(study: Study, ledger: Ledger) -> str:
    histories = read_history(ledger, study, dict.fromkeys(map(study.arm_id, study.arms), Identity()))
    return arms_to_json(build_table(study, histories), histories)


@pytest.mark.slow
def test_an_arms_run_says_what_it_came_to(tmp_path: Path, study: Study) -> None:
    values = {1: 0.5, 2: 0.75}
    confirmed = [record(study, 0, seed=seed, top3=value) for seed, value in values.items()]
    ledger = filled(tmp_path, study, record(study, 0), *confirmed)
    written(tmp_path, ledger, arms_of(study, ledger))
    result, expected = parent(tmp_path), estimate(list(values.values()))
    assert expected is not None
    params = result.data.params
    assert params["learning_rate"] == "0.1" and params["k"] == "3" and params["epochs"] == "2"
    assert (params["regime"], params["model"], params["loss"]) == ("r", "mlp", "cross_entropy")
    assert result.data.metrics["test.top3.mean"] == expected.mean
    assert result.data.metrics["test.top3.half_width"] == pytest.approx(expected.half_width)
    assert result.data.metrics["test.top3.n"] == 2
    note = result.data.tags["mlflow.note.content"]
    assert f"{expected.mean:.2%}" in note and "r/mlp/cross_entropy" in note


@pytest.mark.parametrize("cut_off_at", ["log_batch", "set_tag", "delete_run"])
def test_a_kill_leaves_no_arm_twice_and_none_without_its_results(
    cut_off_at: str, tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is made while an arm's run is replaced by one with another configuration."""
    ledger = filled(tmp_path, study, *(record(study, 0, seed=seed) for seed in range(3)))
    content = json.loads(arms_of(study, ledger))
    written(tmp_path, ledger, json.dumps(content))
    (arm_id,) = content
    content[arm_id]["parameters"] = {"learning_rate": "0.5"}
    tables = {"arms.json": json.dumps(content), "table.md": "# s"}

    experiment = Experiment(ledger, tracking_uri(tmp_path), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, cut_off_at, Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            experiment.write_tables(tables)
    fill(start_feed(tmp_path, ledger), tables)
    after = parent(tmp_path)
    assert after.data.params == {"learning_rate": "0.5"} and after.info.status == "FINISHED"
    assert after.data.metrics["test.top3.mean"] == 0.5
    children = runs(tmp_path, "topk.key")
    assert [run.data.tags["mlflow.parentRunId"] for run in children] == [after.info.run_id] * 3


class Drawing:
    """What makes the pictures, and how often it was asked."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked = 0

    def __call__(self) -> dict[str, bytes]:
        self.asked += 1
        if self.errors:
            raise self.errors.pop()
        return {"report.html": b"<p>all</p>", "plots/differences.svg": b"<svg/>"}


def hand_over(folder: Path, ledger: Ledger, table: str, pictures: Pictures | None, *, local: bool) -> None:
    """In the store's own database, or in the same one as if it were a server's, to which artifacts are sent."""
    uri = None if local else tracking_uri(folder)
    fill(start_feed(folder if local else None, ledger, uri, pictures=pictures), {"table.md": table})


@pytest.mark.slow
@pytest.mark.parametrize("local", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_studys_run_has_the_report_and_plots_of_its_tables(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    """Drawn once for the same tables, and anew for others; in this machine's own database and by MLflow's client."""
    monkeypatch.chdir(tmp_path)  # where a database's client puts artifacts
    ledger, drawing = filled(tmp_path, study, record(study, 0, seed=1)), Drawing()
    location = tmp_path / "mlflow-artifacts" if local else None
    for table, asked in (("# one", 1), ("# one", 1), ("# two", 2)):
        hand_over(tmp_path, ledger, table, drawing, local=local)
        assert drawing.asked == asked
    run = parent(tmp_path, of_study=True)
    if location is not None:
        kept = location / ledger.identity / run.info.run_id / "artifacts"
        files = {str(path.relative_to(kept)): path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    else:
        client = MlflowClient(tracking_uri(tmp_path))
        names = [
            entry.path for folder in ("", "plots") for entry in client.list_artifacts(run.info.run_id, folder)
        ]
        fetched = {name: Path(client.download_artifacts(run.info.run_id, name)) for name in names}
        files = {name: path.read_bytes() for name, path in fetched.items() if path.is_file()}
    assert files == {"report.html": b"<p>all</p>", "plots/differences.svg": b"<svg/>", "table.md": b"# two"}


@pytest.mark.slow
def test_a_report_that_cannot_be_drawn_is_reported_and_drawn_later(tmp_path: Path, study: Study) -> None:
    """MLflow has the tables meanwhile; `topk sync` makes up for it."""
    ledger = filled(tmp_path, study, record(study, 0))
    drawing = Drawing(*[RuntimeError("no font")] * 2)  # tried twice
    ledger.store.write("tables/table.md", b"# one")
    with pytest.raises(UserError, match="MLflow is behind: no font"):
        sync("s", store=tmp_path, pictures=drawing)
    run_id = parent(tmp_path, of_study=True).info.run_id
    kept = tmp_path / "mlflow-artifacts" / ledger.identity / run_id / "artifacts"
    assert [path.name for path in kept.iterdir()] == ["table.md"]
    for pictures, asked in ((None, 2), (drawing, 3), (drawing, 3), (None, 3)):
        sync("s", store=tmp_path, pictures=pictures)
        assert drawing.asked == asked
    assert sorted(path.name for path in kept.iterdir()) == ["plots", "report.html", "table.md"]
    assert len(runs(tmp_path)) == 3  # an arm, its trial, and the study


def test_the_page_of_runs_shows_the_best_arm_first_and_what_tells_arms_apart(tmp_path: Path) -> None:
    study = make_wider_study()
    ended = [record(study, 0, arm=arm, seed=seed, top3=0.5 + arm / 4) for arm in (0, 1) for seed in (0, 1, 2)]
    ledger = filled(tmp_path, study, *ended)
    uri = tracking_uri(tmp_path)
    assert start_feed(tmp_path, ledger).close() == ""
    (page,) = run_pages(uri).values()
    experiment, _, key = page.removeprefix("/#/experiments/").partition("/runs?viewStateShareKey=")
    client = MlflowClient(uri)
    assert json.loads(client.get_experiment(experiment).tags[f"mlflow.sharedViewState.{key}"]) == {}
    written(tmp_path, ledger, arms_of(study, ledger))
    tags = client.get_experiment(experiment).tags
    view = json.loads(tags[f"mlflow.sharedViewState.{key}"])
    assert run_pages(uri) == {"s": page}
    metrics = [
        f"metrics.`{name}`"
        for name in ("test.top3.mean", "test.top3.half_width", "test.top3.n", "final.top3")
    ]
    params = [f"params.`{name}`" for name in ("mode", "samples")]
    assert view == {
        "orderByKey": metrics[0],
        "orderByAsc": False,
        "selectedColumns": [*metrics, "tags.`topk.status`", *params],
    }
    first, *_ = client.search_runs([experiment], order_by=[f"{view['orderByKey']} DESC"])
    assert first.data.tags["topk.parent"] == study.arm_id(study.arms[1])
    known = {
        name for run in client.search_runs([experiment]) for name in (*run.data.metrics, *run.data.params)
    }
    assert {name.partition("`")[2][:-1] for name in metrics + params} <= known
    table = parent(tmp_path, of_study=True).info
    assert f"#/experiments/{experiment}/runs/{table.run_id}/artifacts" in tags["mlflow.note.content"]


@pytest.mark.slow
@pytest.mark.parametrize("local", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_mlflow_loads_a_confirmed_network(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # where a database's client puts artifacts
    folder = tmp_path / "runs"
    ledger, confirmed = filled(folder, study), record(study, 0, seed=1)
    network = build_model(study.arms[0].model, (1, 8, 8), 10, "linear").eval()
    saved = save_model(ledger.store, confirmed.trial, network, Inputs((1, 8, 8), 10, "tensor"))
    filled(folder, study, dataclasses.replace(confirmed, artifacts={"network": saved}))
    inputs = torch.rand(3, 1, 8, 8)
    for table in ("# one", "# two"):
        hand_over(folder, ledger, table, None, local=local)
    (run,) = runs(folder, "topk.key")
    (output,) = run.outputs.model_outputs
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri(folder))
    model = f"models:/{output.model_id}"
    if local:  # as the page says: `topk ui` serves these artifacts, a client of the database alone does not
        (path,) = folder.glob(f"mlflow-artifacts/*/models/{output.model_id}/artifacts")
        kept, model = folder / "s" / artifact_name("network", confirmed.trial.key), str(path)
        assert kept.samefile(path / "model.safetensors")  # the network is on the disk once
    with torch.no_grad():
        expected = network(inputs)
        np.testing.assert_array_equal(
            mlflow.pyfunc.load_model(model).predict(inputs.numpy()), expected.numpy()
        )
