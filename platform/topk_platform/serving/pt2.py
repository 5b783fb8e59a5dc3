"""An exported network as a model of MLflow's, which ``mlflow.pytorch.load_model`` loads and nothing unpickles."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import torch

from topk_platform.errors import UserError, reason
from topk_platform.serving.classifier import Classifier, load_trusting
from topk_platform.serving.package import MLMODEL, PT2, WEIGHTS
from topk_platform.trust import Trust

__all__ = ["graph_of", "write_pt2"]


def graph_of(classifier: Classifier) -> bytes:
    """Return a network as the file that ``torch.export`` writes, preprocessing and tensors in it.

    Its graph takes inputs ``(n, *shape)``, any n, and returns scores ``(n, L)``.

    Args:
        classifier: The network.

    Raises:
        UserError: if the network has an operation that ``torch.export`` cannot follow.
    """
    takes = classifier.config.inputs
    kind = torch.uint8 if takes.kind == "image" else torch.float32
    example = torch.zeros((2, *takes.shape), dtype=kind)
    content = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own workings
            shapes = ({0: torch.export.Dim("n")},)
            graph = torch.export.export(classifier.module, (example,), dynamic_shapes=shapes)
            torch.export.save(graph, content)
    except (torch._dynamo.exc.TorchDynamoException, RuntimeError, ValueError) as error:
        raise UserError(
            f"model {classifier.config.model.name} has no graph of its own: {reason(error)}"
        ) from error
    return content.getvalue()


def write_pt2(folder: Path, trust: Trust) -> tuple[str, ...]:
    """Write ``data/model.pt2`` and ``MLmodel`` beside an exported network, and return their names.

    The first is :func:`graph_of` the network; MLflow makes sure that nothing in it is a pickle before it loads it.

    Args:
        folder: The folder of the export.
        trust: The code that may build its network.

    Raises:
        UserError: as :func:`graph_of`.
    """
    content = graph_of(load_trusting(folder, trust))
    place = folder / PT2
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(content)
    (folder / MLMODEL).write_text(_description())
    return PT2, MLMODEL


def _description() -> str:
    from mlflow.version import VERSION  # noqa: PLC0415 - light, and of this option alone

    flavors = {
        "pytorch": {"model_data": "data", "pytorch_version": torch.__version__, "code": None},
        "python_function": {"loader_module": "topk_platform.serving.flavor", "data": WEIGHTS, "env": {}},
    }
    return (
        json.dumps({"flavors": flavors, "mlflow_version": VERSION}, indent=1) + "\n"
    )  # which is YAML as well
