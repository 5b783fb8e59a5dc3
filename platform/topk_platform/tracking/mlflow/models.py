"""Confirmed networks as MLflow's logged models, with the same bytes as in the store."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput
from mlflow.version import VERSION

from topk_platform.errors import reason
from topk_platform.tracking.mlflow.artifacts import Artifacts
from topk_platform.tracking.tracker import Graphs, TrackedTrial

__all__ = ["forget_models", "log_graphs", "log_model"]

_WEIGHTS = "model.safetensors"
_GRAPH = "data/model.pt2"
_HAS_GRAPH = "topk.graph"
_ENDED = "topk.ended"
_LOADER = "topk_platform.serving.flavor"
_REFUSED = re.compile(
    r"[/:.%\"']"
)  # MLflow refuses them in a model's name, and labels may have them: tau-0.1
_LOG = logging.getLogger("topk_platform")


def log_model(
    experiment: str,
    run_id: str,
    trial: TrackedTrial,
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
        trial: The trial.
        content: The network's safetensors file.
        artifacts: Where the experiment's files go.
        stored: The same file in the store, if that is on this machine.
    """
    client = artifacts.client
    params = {name: str(value) for name, value in trial.parameters.items()}
    name = _REFUSED.sub("_", f"{trial.loss}-{trial.number}-{trial.seed}")
    ended = f"{trial.ended:%Y-%m-%d %H:%M:%S.%f}"
    tags = {"topk.key": trial.key, "arm": trial.arm, _ENDED: ended}
    model = client.create_logged_model(experiment, name, run_id, tags=tags, params=params)
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, 0)])
    files = {"MLmodel": _description(model.model_id, run_id, ended), _WEIGHTS: content}
    artifacts.write_model(model.model_id, files, None if stored is None else {_WEIGHTS: stored})
    client.finalize_logged_model(model.model_id, "READY")


def log_graphs(experiment: str, graphs: Graphs, artifacts: Artifacts) -> None:
    """Add graphs to logged models that have none yet.

    ``mlflow.pytorch.load_model`` can load such a model without this package. If ``torch.export`` cannot trace a
    network, its model stays without a graph, and a warning says so.

    Args:
        experiment: The experiment's id.
        graphs: The functions that make the graphs, by the trial's key.
        artifacts: Where the experiment's files go.
    """
    for model in _models(artifacts.client, experiment):
        key = model.tags.get("topk.key", "")
        if key not in graphs or _HAS_GRAPH in model.tags:
            continue
        try:
            graph = graphs[key]()
        except Exception as error:  # noqa: BLE001 - a user's network may raise any error; it must not stop a study
            _LOG.warning("MLflow gets no graph of %s: %s", model.tags.get("arm"), reason(error))
            continue
        ended = model.tags.get(_ENDED, "")
        description = _description(model.model_id, model.source_run_id, ended, graph.torch)
        artifacts.write_model(model.model_id, {_GRAPH: graph.content, "MLmodel": description})
        artifacts.client.set_logged_model_tags(model.model_id, {_HAS_GRAPH: _GRAPH})


def forget_models(client: MlflowClient, run_id: str) -> None:
    """Delete the models that a run has logged."""
    outputs = client.get_run(run_id).outputs
    for output in outputs.model_outputs if outputs is not None else ():
        client.delete_logged_model(output.model_id)


def _models(client: MlflowClient, experiment: str) -> Iterator[LoggedModel]:
    token: str | None = None
    while token is None or token:
        page = client.search_logged_models([experiment], page_token=token)
        yield from page
        token = page.token or ""


def _description(model_id: str, run_id: str | None, ended: str, torch: str = "") -> bytes:
    """Return the file ``MLmodel``; if a version of torch is given, it also names the graph."""
    flavors: dict[str, Any] = {"python_function": {"loader_module": _LOADER, "data": _WEIGHTS, "env": {}}}
    if torch:
        flavors["pytorch"] = {"model_data": "data", "pytorch_version": torch, "code": None}
    described = {
        "flavors": flavors,
        "mlflow_version": VERSION,
        "model_id": model_id,
        "model_uuid": model_id,
        "run_id": run_id,
        "utc_time_created": ended,
    }
    return json.dumps(described, indent=1).encode()  # JSON is YAML too
