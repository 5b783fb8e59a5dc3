"""MLflow's runs of arms: the chosen configuration, the test metrics, a note and the data."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Dataset as LoggedDataset
from mlflow.entities import DatasetInput, InputTag, Metric, Param

from topk_platform.specs import digest
from topk_platform.tracking.trials import ArmResult, Dataset

__all__ = ["NOTE", "log_data", "replace_arm", "write_arm"]

NOTE = "mlflow.note.content"
_WRITTEN = "topk.written"
_PARENT = "mlflow.parentRunId"


def write_arm(client: MlflowClient, run_id: str, arm: ArmResult) -> str:
    """Write an arm's results to its run; return the run's id, which changes if the run is replaced.

    MLflow cannot change a parameter. If the arm now chooses another configuration, a new run replaces the arm's run,
    and the runs of its trials are moved to the new one.

    Args:
        client: A client of the tracking server.
        run_id: The arm's run.
        arm: The results of the arm.
    """
    run = client.get_run(run_id)
    if run.data.tags.get(_WRITTEN) == (written := digest(arm._asdict())):
        return run_id
    fresh = not run.data.params
    if not fresh and run.data.params != arm.parameters:
        run_id, fresh = _made_anew(client, run), True
    _log(client, run_id, arm.parameters if fresh else {}, arm.metrics)
    log_data(client, run_id, arm.dataset)
    client.set_tag(run_id, NOTE, arm.note)
    client.set_tag(run_id, _WRITTEN, written)
    return run_id


def _log(
    client: MlflowClient, run_id: str, parameters: Mapping[str, str], metrics: Mapping[str, float]
) -> None:
    now = int(time.time() * 1000)
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in metrics.items()],
        params=[Param(name, value) for name, value in parameters.items()],
    )


def _made_anew(client: MlflowClient, run: Any) -> str:
    kept = {name: value for name, value in run.data.tags.items() if name not in (NOTE, _WRITTEN)}
    made = str(client.create_run(run.info.experiment_id, run_name=run.info.run_name, tags=kept).info.run_id)
    client.set_terminated(made)
    replace_arm(client, run.info.experiment_id, run.info.run_id, made)
    return made


def replace_arm(client: MlflowClient, experiment: str, run_id: str, by: str) -> None:
    """Move the runs of an arm's trials from one run of the arm to another, and delete the first one.

    Args:
        client: A client of the tracking server.
        experiment: The experiment's id.
        run_id: The run that is deleted.
        by: The run that replaces it.
    """
    where = f"tags.`{_PARENT}` = '{run_id}'"
    token: str | None = None
    children = []
    while token is None or token:
        page = client.search_runs([experiment], where, max_results=1000, page_token=token)
        children += [child.info.run_id for child in page]
        token = page.token or ""
    for child in children:
        client.set_tag(child, _PARENT, by)
    client.delete_run(run_id)


def log_data(client: MlflowClient, run_id: str, dataset: Dataset) -> None:
    """Write a run's data, by name and fingerprint, as an MLflow dataset.

    Args:
        client: A client of the tracking server.
        run_id: The run.
        dataset: The data.
    """
    source = json.dumps({"dataset": dataset.name, "options": dataset.options})
    data = LoggedDataset(dataset.name, dataset.fingerprint, "topk", source)
    context = InputTag("mlflow.data.context", dataset.regime)
    client.log_inputs(run_id, [DatasetInput(data, [context])])
