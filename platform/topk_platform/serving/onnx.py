"""An exported network as an ONNX file, from bytes to scores."""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path

import torch

from topk_platform.errors import UserError, reason
from topk_platform.serving.loading import load_trusting
from topk_platform.serving.package import ONNX
from topk_platform.trust import Trust

__all__ = ["write_onnx"]


def write_onnx(folder: Path, trust: Trust) -> None:
    """Write ``model.onnx`` beside an exported network: from inputs ``(n, *shape)`` for any n to scores ``(n, L)``.

    The file's metadata has the names of the classes as JSON under ``topk.classes``, and if the network is calibrated,
    the calibration with thresholds at some coverages under ``topk.calibration``.

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
                (torch.zeros((2, *classifier.config.inputs.shape), dtype=classifier.dtype),),
                input_names=["inputs"],
                output_names=["scores"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                dynamo=True,
                verbose=False,
            )
            if program is None:
                raise RuntimeError("torch.onnx.export with dynamo=True must return a program, got None")
            names = [
                classifier.config.inputs.name(label) for label in range(classifier.config.inputs.classes)
            ]
            program.model.metadata_props["topk.classes"] = json.dumps(names)
            if classifier.calibration is not None:
                summary = json.dumps(classifier.calibration.summary())
                program.model.metadata_props["topk.calibration"] = summary
            program.save(folder / ONNX, external_data=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise UserError(
            f"model {classifier.config.model.name} cannot be exported to ONNX: {reason(error)}"
        ) from error
