"""Confirmed networks as MLflow's logged models, with the same bytes as in the store."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput
from mlflow.version import VERSION

from topk_platform.records.table.rows import Row
from topk_platform.tracking.artifacts import Artifacts

__all__ = ["forget_models", "log_model"]

_WEIGHTS = "model.safetensors"
_LOADER = "topk_platform.serving.flavor"
_REFUSED = re.compile(
    r"[/:.%\"']"
)  # MLflow refuses them in a model's name, and labels may have them: tau-0.1


def log_model(
    experiment: str,
    run_id: str,
    row: Row,
    parameters: Mapping[str, str],
    content: bytes,
    artifacts: Artifacts,
    stored: Path | None,
) -> None:
    """Log the network of a confirmation as an MLflow model.

    ``mlflow.pyfunc.load_model`` can load it if this package is installed. The model's folder has the unchanged
    safetensors file and the file ``MLmodel`` that MLflow needs; nothing is pickled.

    Args:
        experiment: The experiment's id.
        run_id: The run of the trial.
        row: The trial's row.
        parameters: Its parameters.
        content: The network's safetensors file.
        artifacts: Where the experiment's files go.
        stored: The same file in the store, if that is on this machine.
    """
    client = artifacts.client
    name = _REFUSED.sub("_", f"{row['loss']}-{row['number']}-{row['seed']}")
    tags = {"topk.key": row["key"], "arm": row["arm"]}
    model = client.create_logged_model(experiment, name, run_id, tags=tags, params=dict(parameters))
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, 0)])
    described = {
        "flavors": {"python_function": {"loader_module": _LOADER, "data": _WEIGHTS, "env": {}}},
        "mlflow_version": VERSION,
        "model_id": model.model_id,
        "model_uuid": model.model_id,
        "run_id": run_id,
        "utc_time_created": f"{row['ended']:%Y-%m-%d %H:%M:%S.%f}",
    }
    # JSON is YAML too.
    files = {"MLmodel": json.dumps(described, indent=1).encode(), _WEIGHTS: content}
    artifacts.write_model(model.model_id, files, None if stored is None else {_WEIGHTS: stored})
    client.finalize_logged_model(model.model_id, "READY")


def forget_models(client: MlflowClient, run_id: str) -> None:
    """Delete the models that a run has logged."""
    outputs = client.get_run(run_id).outputs
    for output in outputs.model_outputs if outputs is not None else ():
        client.delete_logged_model(output.model_id)
