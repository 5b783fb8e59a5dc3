"""Graphs of an exported network: a file of ``torch.export`` for MLflow, without pickles, and an ONNX file."""

from __future__ import annotations

import importlib.util
import io
import json
import warnings
from pathlib import Path

import torch
from safetensors.torch import load

from topk_platform.errors import StoreError, UserError, reason
from topk_platform.records import Row, Store, read_model
from topk_platform.records.artifacts.files import artifact_name
from topk_platform.serving.classifier import Classifier
from topk_platform.serving.loading import assembled, load_trusting
from topk_platform.serving.package import MLMODEL, ONNX, PT2, Config
from topk_platform.tracking import Graph
from topk_platform.trust import Trust

__all__ = ["graph_of", "graph_of_row", "write_onnx", "write_pt2"]


_ANY_NUMBER = ({0: torch.export.Dim("n")},)


def _example(classifier: Classifier) -> torch.Tensor:
    return torch.zeros((2, *classifier.config.inputs.shape), dtype=classifier.dtype)


def graph_of(classifier: Classifier) -> bytes:
    """Return a network as a file of ``torch.export``, including preprocessing and tensors.

    The graph takes inputs ``(n, *shape)`` for any n, and returns scores ``(n, L)``.

    Args:
        classifier: The network.

    Raises:
        UserError: if ``torch.export`` cannot trace an operation of the network.
    """
    content = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's internals
            graph = torch.export.export(
                classifier.module, (_example(classifier),), dynamic_shapes=_ANY_NUMBER
            )
            torch.export.save(graph, content)
    except (torch._dynamo.exc.TorchDynamoException, RuntimeError, ValueError) as error:
        raise UserError(
            f"model {classifier.config.model.name} cannot be exported by torch.export: {reason(error)}"
        ) from error
    return content.getvalue()


def graph_of_row(store: Store, row: Row, trust: Trust) -> Graph:
    """Return the graph of a confirmed network in a store.

    Args:
        store: The study's folder.
        row: The confirmation's row of the ledger.
        trust: The code that may build the network.

    Raises:
        StoreError: if the store has no such network.
        UserError: as for :func:`graph_of`.
    """
    saved = read_model(store, row)
    if saved is None:
        raise StoreError(f"the store holds no network of trial {row['key']}")
    file = f"{store.uri}/{artifact_name('network', row['key'])}"
    classifier = assembled(Config.of(saved), load(saved.content), file, trust)
    return Graph(graph_of(classifier), torch.__version__)


def write_pt2(folder: Path, trust: Trust) -> tuple[str, ...]:
    """Write ``data/model.pt2`` and ``MLmodel`` beside an exported network, and return their names.

    ``data/model.pt2`` is the result of :func:`graph_of`. Before MLflow loads it, it checks that it contains no pickle.

    Args:
        folder: The folder of the export.
        trust: The code that may build its network.

    Raises:
        UserError: as for :func:`graph_of`.
    """
    content = graph_of(load_trusting(folder, trust))
    file = folder / PT2
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    (folder / MLMODEL).write_text(_description())
    return PT2, MLMODEL


def _description() -> str:
    from mlflow.version import VERSION  # noqa: PLC0415 - only this option needs MLflow

    flavors = {
        "pytorch": {"model_data": "data", "pytorch_version": torch.__version__, "code": None},
        "python_function": {"loader_module": "topk_platform.serving.flavor", "env": {}},
    }
    return json.dumps({"flavors": flavors, "mlflow_version": VERSION}, indent=1) + "\n"  # JSON is YAML too


def write_onnx(folder: Path, trust: Trust) -> None:
    """Write ``model.onnx`` beside an exported network: from inputs ``(n, *shape)`` for any n to scores ``(n, L)``.

    If the network is calibrated, the file's metadata has the calibration with thresholds at some coverages, as JSON
    under ``topk.calibration``.

    Args:
        folder: The folder of the export.
        trust: The code that may build its network.

    Raises:
        UserError: if the extra ``onnx`` is not installed, or ONNX lacks an operation of the network.
    """
    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        raise UserError(f"--onnx needs {' and '.join(missing)}: pip install 'topk-studies[onnx]'")
    classifier = load_trusting(folder, trust)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's internals
            program = torch.onnx.export(
                classifier.module,
                (_example(classifier),),
                input_names=["inputs"],
                output_names=["scores"],
                dynamic_shapes=_ANY_NUMBER,
                dynamo=True,
                verbose=False,
            )
            if program is None:
                raise RuntimeError("torch.onnx.export with dynamo=True must return a program, got None")
            if classifier.calibration is not None:
                summary = json.dumps(classifier.calibration.summary())
                program.model.metadata_props["topk.calibration"] = summary
            program.save(folder / ONNX, external_data=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise UserError(
            f"model {classifier.config.model.name} cannot be exported to ONNX: {reason(error)}"
        ) from error
