"""The loader of logged networks for MLflow: ``mlflow.pyfunc.load_model("models:/ID")``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load

from topk_platform.errors import UserError
from topk_platform.records.networks import SavedModel
from topk_platform.serving.classifier import Classifier
from topk_platform.serving.conformal import check_finite
from topk_platform.serving.loader import assembled
from topk_platform.serving.package import Config
from topk_platform.trust import Trust, made_by

__all__ = ["Predictor"]


class Predictor:
    """A network with the interface of ``mlflow.pyfunc``.

    Args:
        classifier: The network.
    """

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> npt.NDArray[np.float32]:
        """Return the scores ``(n, L)`` of inputs ``(n, *shape)``.

        Images may have any integer type, because JSON has only one; their values must be from 0 to 255. A network that
        takes numbers accepts integers and floats.

        Raises:
            UserError: if the inputs have another shape, type or range, or a score is not finite, as for an input with
                NaN. MLflow's server would write NaN into its answer, and JSON has no such number.
        """
        del params
        as_taken = _pixels if self.classifier.config.inputs.kind == "image" else _numbers
        scores = self.classifier.scores(torch.from_numpy(as_taken(np.array(model_input))))
        check_finite(scores)
        return np.asarray(scores.numpy(), np.float32)

    def get_raw_model(self) -> Classifier:
        """Return the network itself, for ``unwrap_python_model`` and the like."""
        return self.classifier


def _pixels(given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if given.size and given.dtype.kind not in "iu":  # an empty list is an array of floats
        raise UserError(f"inputs must be whole numbers from 0 to 255, got {given.dtype}")
    if given.size and not 0 <= given.min() <= given.max() <= 255:
        raise UserError(f"inputs must be whole numbers from 0 to 255, got {given.min()} to {given.max()}")
    return given.astype(np.uint8)


def _numbers(given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if given.dtype.kind not in "fiu":
        raise UserError(f"inputs must be numbers, got {given.dtype}")
    return given.astype(np.float32)


def _load_pyfunc(path: str) -> Predictor:
    """Return the network in a safetensors file; MLflow calls this function by its name.

    A user's own network needs its module in the environment variable ``TOPK_TRUST``. MLflow could also pass options,
    but these come from the model's own file ``MLmodel``, and this file must not decide which code is trusted.
    """
    trust = Trust.of_environment()
    with made_by(path, "the network of a trial", SafetensorError):
        saved = SavedModel.of(Path(path).read_bytes())
        config = Config.of(saved)
        config.check_size()
        trust.check(path, config.code)
        tensors = load(saved.content)
    return Predictor(assembled(config, tensors, path, trust))
