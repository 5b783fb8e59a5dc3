"""The architecture in one test: a value's way from the study file to the table."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
from labs import rows
from mlflow import MlflowClient
from safetensors import safe_open

from topk_platform.specs import Trial

ARM = "noisy/held/smooth_topk_svm"


def test_tau_from_the_study_file_to_the_table(reference: Any, visited: Any) -> None:
    folder = reference.store / "small"
    # 1, 2: the study file says 0.31 for the first trial; the searcher hands it out.
    rows = ds.dataset(folder / "tables" / "trials.parquet").to_table().to_pylist()
    (first,) = [r for r in rows if r["arm"] == ARM and r["phase"] == "search" and r["number"] == 0]
    assert first["param.tau"] == 0.31
    # 3: it became a trial whose key is the hash of all that determines its result.
    trial = Trial.from_json(first["config"])
    assert trial.key == first["key"]
    assert trial.values["tau"] == 0.31
    # 5: its epochs are beside it, and the last one is what the row says.
    epochs = duckdb.sql(
        f"""select epoch, "validation.top3" from '{folder}/tables/epochs.parquet'
        where key = '{trial.key}' order by epoch"""
    ).fetchall()
    assert [epoch for epoch, _ in epochs] == list(range(1, 9))
    assert epochs[-1][1] == first["validation.top3"]
    # 6: the record says how it ended and where; a search never sees the test set.
    assert first["status"] == "completed"
    assert first["test.top3"] is None
    versions = json.loads(first["versions"])
    assert set(versions) == {"python", "torch", "losses", "machine", "ray", "optuna"}
    assert trial.environment == {name: versions[name] for name in ("torch", "losses", "machine", "optuna")}
    # 8: MLflow has it, under its arm.
    client = MlflowClient(f"sqlite:///{reference.store / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    (run,) = client.search_runs([experiment.experiment_id], f"tags.`topk.key` = '{trial.key}'")
    assert run.data.params["tau"] == "0.31"
    assert run.data.metrics["final.top3"] == first["validation.top3"]
    assert client.get_run(run.data.tags["mlflow.parentRunId"]).data.tags["arm"] == ARM
    # 9: the table tells of the best by validation, over fresh seeds, on the test set.
    searched = [r for r in rows if r["arm"] == ARM and r["phase"] == "search" and r["status"] == "completed"]
    best = max(searched, key=lambda r: (r["validation.top3"], -r["number"]))
    confirmed = [r for r in rows if r["arm"] == ARM and r["phase"] == "confirm"]
    assert {r["seed"] for r in confirmed} == {1, 2}
    assert {r["param.tau"] for r in confirmed} == {best["param.tau"]}
    mean = sum(r["test.top3"] for r in confirmed) / 2
    table, _ = visited.topk("table", "my_lab:study", "--store", reference.store, "--format", "md")
    assert any(
        f"{100 * mean:.1f} {sign}" in table for sign in ("± ", "[")
    )  # an uneven interval shows its ends
    # So did the user's own measure and what else it returned, without being part of the trial's key.
    assert {r["own.images"] for r in confirmed} == {360} and {r["own.images"] for r in searched} == {None}
    assert [r["own.wrong"] for r in confirmed] == pytest.approx([r["test.top1"] - 1 for r in confirmed])
    # The confirmed network is kept with its configuration, and in MLflow.
    with safe_open(str(folder / "models" / f"{confirmed[0]['key']}.safetensors"), "pt") as file:
        assert Trial.from_json(file.metadata()["trial"]).key == confirmed[0]["key"]
    (kept,) = client.search_runs([experiment.experiment_id], f"tags.`topk.key` = '{confirmed[0]['key']}'")
    assert kept.data.tags["own.wrong"] == str(confirmed[0]["own.wrong"])
    (output,) = kept.outputs.model_outputs
    location = client.get_logged_model(output.model_id).artifact_location
    path = location.removeprefix("mlflow-artifacts:/")
    assert (reference.store / "mlflow-artifacts" / path / "model.safetensors").exists()


def test_a_trial_can_be_shown_and_run_alone_with_the_same_bits(
    reference: Any, visited: Any, lab: Any
) -> None:
    rows = ds.dataset(reference.store / "small" / "tables" / "trials.parquet").to_table().to_pylist()
    row = next(r for r in rows if r["phase"] == "confirm")
    shown, _ = visited.topk("replay", row["key"][:10], "--no-train", "--store", reference.store)
    assert row["key"] in shown
    assert str(row["param.learning_rate"]) in shown
    replayed, _ = lab.topk("replay", row["key"], "--store", reference.store)
    assert "bit for bit" in replayed
    pruned = [r for r in rows if r["status"] == "pruned"]
    assert pruned, "no trial of this study is pruned: it tests nothing of pruning"
    replayed, _ = visited.topk("replay", pruned[0]["key"], "--store", reference.store)
    assert "bit for bit" in replayed


def test_a_second_run_finds_everything_done(reference: Any, visited: Any) -> None:
    before = [rows(reference.store, "small", kind) for kind in ("trials", "epochs")]
    done, _ = visited.topk("run", "my_lab:study", "--store", reference.store)
    assert "0 trials ran" in done
    assert "top-3 accuracy, %" in done
    assert [rows(reference.store, "small", kind) for kind in ("trials", "epochs")] == before
    plan, _ = visited.topk("plan", "my_lab:study", "--store", reference.store)
    assert "6/6" in plan and "2/2" in plan and "0 trials left" in plan
    status, _ = visited.topk("status", "--store", reference.store)
    assert "small: 16 trials ended" in status
