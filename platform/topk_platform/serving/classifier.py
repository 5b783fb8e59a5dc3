"""An exported network and its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from topk_losses.operators import inclusion_probabilities
from topk_platform.errors import UserError
from topk_platform.models import architecture_of, build_model
from topk_platform.serving.package import WEIGHTS, Config
from topk_platform.serving.pictures import read_inputs
from topk_platform.training.batches import Normalisation

__all__ = ["Candidate", "Classifier", "Prepared", "assembled", "load_model"]

_AT_ONCE = 64


@dataclass(frozen=True)
class Candidate:
    """One of the K guesses for an image.

    Args:
        label: The class's number.
        name: Its name, or its number where the data have no names.
        probability: The probability of being among the K best, see
            :func:`~topk_losses.operators.inclusion_probabilities`; those of all classes sum to K.
    """

    label: int
    name: str
    probability: float


class Prepared(nn.Module):
    """A network with its preprocessing: of uint8 images, or of float32 numbers, to scores ``(n, L)``."""

    def __init__(self, network: nn.Module, normalisation: Normalisation | None) -> None:
        super().__init__()
        self.network = network
        self.normalisation = normalisation

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores."""
        if self.normalisation is not None:
            inputs = self.normalisation(inputs)
        scores: Tensor = self.network(inputs).float()
        return scores


@dataclass(frozen=True)
class Classifier:
    """A trained network with all that is needed to use it.

    Args:
        config: The network's configuration.
        module: From inputs as they are read to scores ``(n, L)``, in evaluation mode.
    """

    config: Config
    module: Prepared

    @torch.no_grad()
    def scores(self, inputs: Tensor) -> Tensor:
        """Return the scores ``(n, L)``, float32.

        Args:
            inputs: ``(n, *shape)``, uint8 images or float32 numbers as ``config.inputs.kind`` says.

        Raises:
            UserError: if they are of another shape or type.
        """
        wanted = self.config.inputs
        kind = torch.uint8 if wanted.kind == "image" else torch.float32
        if tuple(inputs.shape[1:]) != wanted.shape or inputs.dtype != kind:
            raise UserError(
                f"inputs must be {kind} of shape (n, {', '.join(map(str, wanted.shape))}), "
                f"got {inputs.dtype} of shape {tuple(inputs.shape)}"
            )
        return torch.cat([self.module(part) for part in torch.split(inputs, _AT_ONCE)])

    def candidates(self, inputs: Tensor, k: int | None = None) -> list[list[Candidate]]:
        """Return the K candidates for each of some inputs, the most probable first.

        Args:
            inputs: As for :meth:`scores`.
            k: K; by default that of the arm.

        Raises:
            UserError: if k is not in [1, L], or as :meth:`scores`.
        """
        k, classes = self.config.k if k is None else k, self.config.inputs.classes
        if not 1 <= k <= classes:
            raise UserError(f"k must be in [1, {classes}], the number of classes, got {k}")
        scores = self.scores(inputs)
        labels = scores.topk(k, dim=1).indices
        chances = inclusion_probabilities(scores, k).gather(1, labels)
        return [
            [
                Candidate(label, self.config.inputs.name(label), chance)
                for label, chance in zip(*row, strict=True)
            ]
            for row in zip(labels.tolist(), chances.tolist(), strict=True)
        ]

    def predict(
        self, paths: str | Path | Sequence[str | Path], k: int | None = None
    ) -> list[list[Candidate]]:
        """Return the K candidates for each of some files, the most probable first.

        Args:
            paths: Images; ``.npy`` files for a network that takes numbers. One path is a list of one.
            k: K; by default that of the arm.

        Raises:
            UserError: if a file cannot be read, or k is not in [1, L].
        """
        found: list[list[Candidate]] = []
        paths = [paths] if isinstance(paths, str | Path) else paths
        for start in range(0, len(paths), _AT_ONCE):
            found += self.candidates(read_inputs(paths[start : start + _AT_ONCE], self.config.inputs), k)
        return found


def load_model(folder: str | Path) -> Classifier:
    """Return the network that ``topk export STUDY --arm ARM --to FOLDER`` wrote.

    Three lines make it work: ``from topk_platform import load_model``, ``model = load_model("FOLDER")`` and
    ``model.predict(["image.png"])``. Nothing of it is unpickled; a network of one's own is built by its function, which
    has to be importable.

    Args:
        folder: The folder.

    Raises:
        UserError: if it holds no exported network, or the function that builds it is not there.
    """
    from safetensors import SafetensorError  # noqa: PLC0415 - for the error alone
    from safetensors.torch import load_file  # noqa: PLC0415 - as above

    place = Path(folder)
    config = Config.read(place)
    try:
        tensors = load_file(place / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{place / WEIGHTS} cannot be read: {error}") from error
    return assembled(config, tensors)


def assembled(config: Config, tensors: dict[str, Tensor]) -> Classifier:
    """Return the network of these tensors.

    Raises:
        UserError: if the function that builds it is not there, or builds another network.
    """
    takes = config.inputs
    with torch.random.fork_rng(devices=[]):
        network = build_model(architecture_of(config.model), takes.shape, takes.classes, config.head)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(
            f"model {config.model.name} builds another network than was exported: {' '.join(str(error).split())}"
        ) from error
    how = Normalisation.by(takes.mean, takes.std) if takes.kind == "image" else None
    return Classifier(config, Prepared(network, how).eval())
