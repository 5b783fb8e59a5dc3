"""Confirmed networks as MLflow's logged models: one copy each, with the store's bytes."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from topk_platform.errors import reason
from topk_platform.records.table.rows import Row
from topk_platform.records.tracked_artifacts import Artifacts

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

__all__ = ["Graph", "Graphs", "forget_models", "log_graphs", "log_model"]

_WEIGHTS = "model.safetensors"
_GRAPH = "data/model.pt2"
_HAS_GRAPH = "topk.graph"
_LOADER = "topk_platform.serving.flavor"
_REFUSED = re.compile(r"[/:.%\"']")  # by MLflow in a model's name, and a label may have them: tau-0.1
_LOG = logging.getLogger("topk_platform")


class Graph(NamedTuple):
    """A network as ``torch.export`` writes it, with its tensors.

    Attributes:
        content: The file.
        torch: The version of torch that wrote it.
    """

    content: bytes
    torch: str


Graphs = Mapping[str, Callable[[], Graph]]
"""By a confirmation's key, what makes its network's graph."""


def log_model(experiment: str, run_id: str, row: Row, content: bytes, artifacts: Artifacts) -> None:
    """Log a confirmation's network, which ``mlflow.pyfunc.load_model`` then loads where this package is installed.

    Its folder has the safetensors file as it is and the few lines that MLflow asks for; nothing is pickled.

    Args:
        experiment: The experiment's id.
        run_id: The run of the trial.
        row: The trial's row.
        content: The network's safetensors file.
        artifacts: Where the experiment's files go.
    """
    from mlflow.entities import LoggedModelOutput  # noqa: PLC0415 - seconds of import

    client = artifacts.client
    params = {name: str(value) for name, value in json.loads(row["values"]).items() if value is not None}
    name = _REFUSED.sub("_", f"{row['loss']}-{row['number']}-{row['seed']}")
    model = client.create_logged_model(
        experiment, name, run_id, tags={"topk.key": row["key"], "arm": row["arm"]}, params=params
    )
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, 0)])
    files = {"MLmodel": _description(model.model_id, run_id, row), _WEIGHTS: content}
    artifacts.write_model(model.model_id, files)
    client.finalize_logged_model(model.model_id, "READY")


def log_graphs(experiment: str, graphs: Graphs, rows: Mapping[str, Row], artifacts: Artifacts) -> None:
    """Add graphs to logged models that have none yet, which ``mlflow.pytorch.load_model`` then loads anywhere.

    A network that ``torch.export`` cannot follow is told in a line and stays without.

    Args:
        experiment: The experiment's id.
        graphs: What makes them.
        rows: The rows of their trials, by key.
        artifacts: Where the experiment's files go.
    """
    for model in _models(artifacts.client, experiment):
        key = model.tags.get("topk.key", "")
        if key not in graphs or key not in rows or _HAS_GRAPH in model.tags:
            continue
        try:
            graph = graphs[key]()
        except Exception as error:  # noqa: BLE001 - of anybody's network; it must not stop a study
            _LOG.warning("MLflow gets no graph of %s: %s", rows[key]["arm"], reason(error))
            continue
        description = _description(model.model_id, model.source_run_id, rows[key], graph.torch)
        artifacts.write_model(model.model_id, {_GRAPH: graph.content, "MLmodel": description})
        artifacts.client.set_logged_model_tags(model.model_id, {_HAS_GRAPH: _GRAPH})


def forget_models(client: MlflowClient, run: Any) -> None:
    """Delete the models that a deleted run had logged."""
    outputs = client.get_run(run.info.run_id).outputs
    for output in outputs.model_outputs if outputs is not None else ():
        client.delete_logged_model(output.model_id)


def _models(client: MlflowClient, experiment: str) -> Iterator[LoggedModel]:
    token: str | None = None
    while token is None or token:
        page = client.search_logged_models([experiment], page_token=token)
        yield from page
        token = page.token or ""


def _description(model_id: str, run_id: str | None, row: Row, torch: str = "") -> bytes:
    """Return the file ``MLmodel``; with a version of torch it tells of a graph, too."""
    from mlflow.version import VERSION  # noqa: PLC0415 - as above

    flavors: dict[str, Any] = {"python_function": {"loader_module": _LOADER, "data": _WEIGHTS, "env": {}}}
    if torch:
        flavors["pytorch"] = {"model_data": "data", "pytorch_version": torch, "code": None}
    told = {
        "flavors": flavors,
        "mlflow_version": VERSION,
        "model_id": model_id,
        "model_uuid": model_id,
        "run_id": run_id,
        "utc_time_created": f"{row['ended']:%Y-%m-%d %H:%M:%S.%f}",
    }
    return json.dumps(told, indent=1).encode()  # which is YAML as well
