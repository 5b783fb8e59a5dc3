"""A trained network, ready to use: its scores, its candidates and its sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from topk_losses.operators import inclusion_probabilities
from topk_platform.errors import UserError
from topk_platform.serving.package import Config
from topk_platform.serving.pictures import Given, listed, read_inputs
from topk_platform.serving.sets.conformal import calibrate, sets
from topk_platform.serving.sets.set_calibration import METHODS, SetCalibration, needed_calibration
from topk_platform.training.steps.batches import Normalisation

__all__ = ["Candidate", "Classifier", "Prepared"]

_AT_ONCE = 64


@dataclass(frozen=True)
class Candidate:
    """One of the classes that are predicted for an image: of its K candidates, or of its set.

    Args:
        label: The class's number.
        name: Its name, or its number if the data have no names.
        probability: Of K candidates, the probability of being among the K best, see
            :func:`~topk_losses.operators.inclusion_probabilities`; those of all classes sum to K. Of a set, the
            calibrated probability of being the true class.
    """

    label: int
    name: str
    probability: float


class Prepared(nn.Module):
    """A network with its preprocessing: from uint8 images or float32 numbers to scores ``(n, L)``."""

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
    """A trained network, ready to use.

    Args:
        config: The network's configuration.
        module: Computes scores ``(n, L)`` from inputs as they are read, in evaluation mode.
        calibration: What sets with a guaranteed coverage need; None if the network was not calibrated.
    """

    config: Config
    module: Prepared
    calibration: SetCalibration | None = None

    def __repr__(self) -> str:
        config, takes = self.config, self.config.inputs
        return (
            f"Classifier({config.arm}: {config.k} candidates of {takes.classes} classes, {takes.kind}s of shape "
            f"{takes.shape})"
        )

    @torch.no_grad()
    def scores(self, inputs: Tensor) -> Tensor:
        """Return the scores ``(n, L)``, float32.

        Args:
            inputs: ``(n, *shape)``, uint8 images or float32 numbers as ``config.inputs.kind`` says.

        Raises:
            UserError: if their shape or type is another one.
        """
        takes = self.config.inputs
        kind = torch.uint8 if takes.kind == "image" else torch.float32
        if tuple(inputs.shape[1:]) != takes.shape or inputs.dtype != kind:
            raise UserError(
                f"inputs must be {kind} of shape (n, {', '.join(map(str, takes.shape))}), "
                f"got {inputs.dtype} of shape {tuple(inputs.shape)}"
            )
        return torch.cat([self.module(part) for part in torch.split(inputs, _AT_ONCE)])

    def candidates(self, inputs: Tensor, k: int | None = None) -> list[list[Candidate]]:
        """Return the K candidates for each of some inputs, the most probable first.

        Args:
            inputs: As for :meth:`scores`.
            k: K; by default the arm's K.

        Raises:
            UserError: if k is not in [1, L], and as for :meth:`scores`.
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

    def predict(self, given: Given | Sequence[Given], k: int | None = None) -> list[list[Candidate]]:
        """Return the K candidates for each of some inputs, the most probable first.

        Args:
            given: One or several: paths of images, folders of images, images of Pillow's, uint8 arrays or tensors; for
                a network that takes numbers, ``.npy`` files, folders of them, arrays or tensors. See
                :func:`~topk_platform.serving.pictures.listed` and :func:`~topk_platform.serving.pictures.read_inputs`.
            k: K; by default the arm's K.

        Raises:
            UserError: if a file cannot be read, something else is given than the network takes, or k is not in [1, L].
        """
        return self._each(given, lambda inputs: self.candidates(inputs, k))

    def sets(self, inputs: Tensor, coverage: float = 0.95, method: str = METHODS[0]) -> list[list[Candidate]]:
        """Return a set of classes for each of some inputs, the most probable class first.

        Over many images a set holds the true class at least as often as ``coverage`` says, if the images and the
        calibration samples are exchangeable. A set has at least one class.

        Args:
            inputs: As for :meth:`scores`.
            coverage: In ``(0, 1)``.
            method: ``"threshold"``, ``"aps"``, ``"raps"`` or ``"prevalence"``, see
                :func:`~topk_platform.serving.sets.conformal.nonconformity`.

        Raises:
            UserError: if the network is not calibrated, the coverage is not in (0, 1) or needs more calibration
                samples, or the method is unknown, and as for :meth:`scores`.
        """
        calibration = needed_calibration(self.calibration)
        inside, probabilities = sets(self.scores(inputs), calibration, coverage, method)
        return [
            [
                Candidate(label, self.config.inputs.name(label), float(row[label]))
                for label in row.argsort(descending=True, stable=True).tolist()
                if chosen[label]
            ]
            for chosen, row in zip(inside, probabilities, strict=True)
        ]

    def predict_sets(
        self,
        given: Given | Sequence[Given],
        coverage: float = 0.95,
        method: str = METHODS[0],
    ) -> list[list[Candidate]]:
        """Return a set of classes for each of some images, as :meth:`sets` does.

        Args:
            given: As for :meth:`predict`.
            coverage: In ``(0, 1)``.
            method: As for :meth:`sets`.

        Raises:
            UserError: if a file cannot be read, and as for :meth:`sets`.
        """
        needed_calibration(self.calibration).threshold(coverage, method)  # before any file is read
        return self._each(given, lambda inputs: self.sets(inputs, coverage, method))

    def calibrated(self, inputs: Tensor, labels: Tensor) -> Classifier:
        """Return the classifier, calibrated on labelled samples of yours, which must not have trained or chosen it.

        Args:
            inputs: As for :meth:`scores`.
            labels: Their classes, int64 ``(n,)``.

        Raises:
            UserError: if there are no samples or another number of labels, a label is not in ``[0, L)``, or as for
                :meth:`scores`.

        Example:
            >>> model = load_model("winner").calibrated(images, labels)  # doctest: +SKIP
            >>> model.predict_sets(["image.png"], coverage=0.9)  # doctest: +SKIP
        """
        classes = self.config.inputs.classes
        if labels.shape != (len(inputs),) or not len(labels):
            raise UserError(
                f"labels must be one for each of n > 0 inputs, got {tuple(labels.shape)} for {len(inputs)} inputs"
            )
        if labels.min() < 0 or labels.max() >= classes:
            raise UserError(
                f"labels must be in [0, {classes}), got {int(labels.min())} to {int(labels.max())}"
            )
        known = None if self.calibration is None else torch.tensor(self.calibration.prevalences)
        counts = torch.bincount(labels, minlength=classes) if known is None else known
        return replace(self, calibration=calibrate(self.scores(inputs), labels, counts, self.config.key))

    def _each(
        self, given: Given | Sequence[Given], predict: Callable[[Tensor], list[list[Candidate]]]
    ) -> list[list[Candidate]]:
        items = listed(given, self.config.inputs)
        parts = (items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE))
        return [row for part in parts for row in predict(read_inputs(part, self.config.inputs))]
