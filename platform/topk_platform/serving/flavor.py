"""How MLflow loads a logged network: ``mlflow.pyfunc.load_model("models:/ID")``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load

from topk_platform.errors import UserError
from topk_platform.records import SavedModel
from topk_platform.serving.classifier import Classifier, assembled
from topk_platform.serving.package import Config

__all__ = ["Predictor"]


class Predictor:
    """What ``mlflow.pyfunc`` asks for scores.

    Args:
        classifier: The network.
    """

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> npt.NDArray[np.float32]:
        """Return the scores ``(n, L)`` of inputs ``(n, *shape)``, uint8 images or real numbers."""
        del params
        given = torch.from_numpy(np.array(model_input))
        scores = self.classifier.scores(given.float() if given.is_floating_point() else given)
        return np.asarray(scores.numpy(), np.float32)

    def get_raw_model(self) -> Classifier:
        """Return the network itself, as ``unwrap_python_model`` and the like hand it on."""
        return self.classifier


def _load_pyfunc(path: str) -> Predictor:
    """Return what MLflow calls by this name: the network in a safetensors file."""
    try:
        saved = SavedModel.of(Path(path).read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is {error}") from error
    return Predictor(assembled(Config.of(saved), load(saved.content)))
