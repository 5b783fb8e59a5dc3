"""A trained network, ready to use: its scores, its candidates and its sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from topk_losses.operators import inclusion_probabilities
from topk_platform.data import Split
from topk_platform.data.arrays import to_labels
from topk_platform.errors import UserError
from topk_platform.serving.conformal import calibrate, check_finite, prevalences_of, sets
from topk_platform.serving.network_inputs import Given, listed, read_inputs
from topk_platform.serving.package import Config
from topk_platform.serving.set_calibration import METHODS, SetCalibration, needed_calibration
from topk_platform.training.steps.batches import Normalisation

__all__ = ["Candidate", "Classifier", "Prepared"]

_AT_ONCE = 64


@dataclass(frozen=True)
class Candidate:
    """A class that is predicted for an image, as one of its K candidates or as a member of its set.

    Args:
        label: The class's number.
        name: Its name, or its number if the data have no names.
        probability: For one of K candidates, the probability of being among the K best, see
            :func:`~topk_losses.operators.inclusion_probabilities`; the probabilities of all classes sum to K. For a
            member of a set, the calibrated probability of being the true class.
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
        module: The network with its preprocessing, in evaluation mode. It computes scores ``(n, L)`` from inputs as
            they are read.
        calibration: The calibration for sets with a guaranteed coverage; None if the network is not calibrated.
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

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers that the network takes."""
        return torch.uint8 if self.config.inputs.kind == "image" else torch.float32

    @torch.no_grad()
    def scores(self, inputs: Tensor) -> Tensor:
        """Return the scores ``(n, L)``, float32.

        Args:
            inputs: ``(n, *shape)``, uint8 images or float32 numbers as ``config.inputs.kind`` says.

        Raises:
            UserError: if the inputs have another shape or type.
        """
        takes = self.config.inputs
        if tuple(inputs.shape[1:]) != takes.shape or inputs.dtype != self.dtype:
            raise UserError(
                f"inputs must be {self.dtype} of shape (n, {', '.join(map(str, takes.shape))}), "
                f"got {inputs.dtype} of shape {tuple(inputs.shape)}"
            )
        return torch.cat([self.module(part) for part in torch.split(inputs, _AT_ONCE)])

    def scores_of(self, split: Split) -> Tensor:
        """Return the scores of all samples of a split."""
        return torch.cat([self.scores(part) for part in split.in_order()])

    def candidates(self, inputs: Tensor, k: int | None = None, first: int = 0) -> list[list[Candidate]]:
        """Return the K candidates for each input, the most probable first.

        Args:
            inputs: As for :meth:`scores`.
            k: K; by default the arm's K.
            first: The number of the first input among all, for messages.

        Raises:
            UserError: if k is not in [1, L] or a score is not finite, and as for :meth:`scores`.
        """
        k, classes = self.config.k if k is None else k, self.config.inputs.classes
        if not 1 <= k <= classes:
            raise UserError(f"k must be in [1, {classes}], the number of classes, got {k}")
        scores = self.scores(inputs)
        check_finite(scores, first)
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
        self, given: Given | Sequence[Given], k: int | None = None, unreadable: dict[str, str] | None = None
    ) -> list[list[Candidate]]:
        """Return the K candidates for each input, the most probable first.

        Args:
            given: One input or several: paths of images, folders of images, Pillow images, uint8 arrays or tensors; for
                a network that takes numbers, ``.npy`` files, folders of them, arrays or tensors. See ``listed`` and
                ``read_inputs`` of :mod:`topk_platform.serving.network_inputs`.
            k: K; by default the arm's K.
            unreadable: If given, inputs that cannot be read are left out; the reasons are put here, by path.

        Raises:
            UserError: if a file cannot be read, the network does not take such an input, k is not in [1, L], or a
                score is not finite, as for an input with NaN.
        """
        return self._each(given, lambda inputs, first: self.candidates(inputs, k, first), unreadable)

    def sets(
        self, inputs: Tensor, coverage: float = 0.95, method: str = METHODS[0], first: int = 0
    ) -> list[list[Candidate]]:
        """Return a set of classes for each input, the most probable class first.

        On average over many images, the share of sets that hold the true class is at least ``coverage``, if the images
        and the calibration samples are exchangeable and the latter did not select the network. A set has at least one
        class.

        Args:
            inputs: As for :meth:`scores`.
            coverage: In ``(0, 1)``.
            method: ``"threshold"`` or ``"prevalence"``, see
                :func:`~topk_platform.serving.conformal.nonconformity`.
            first: The number of the first input among all, for messages.

        Raises:
            UserError: if the network is not calibrated, the coverage is not in (0, 1) or needs more calibration
                samples, or the method is unknown, and as for :meth:`scores`.
        """
        calibration = needed_calibration(self.calibration)
        inside, probabilities = sets(self.scores(inputs), calibration, coverage, method, first)
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
        unreadable: dict[str, str] | None = None,
    ) -> list[list[Candidate]]:
        """Return a set of classes for each input, as :meth:`sets` does.

        Args:
            given: As for :meth:`predict`.
            coverage: In ``(0, 1)``.
            method: As for :meth:`sets`.
            unreadable: As for :meth:`predict`.

        Raises:
            UserError: if a file cannot be read, and as for :meth:`sets`.
        """
        needed_calibration(self.calibration).threshold(coverage, method)  # before any file is read
        return self._each(given, lambda inputs, first: self.sets(inputs, coverage, method, first), unreadable)

    def calibrated(
        self, given: Given | Sequence[Given], labels: Sequence[int] | npt.NDArray[Any] | Tensor
    ) -> Classifier:
        """Return the classifier, calibrated on your own labelled samples.

        The samples must be new to the network: they must not have been used to train it or to choose it.

        Args:
            given: As for :meth:`predict`.
            labels: Their classes, ``n`` whole numbers.

        Raises:
            UserError: if there are no samples or another number of labels, a label is not a whole number in ``[0, L)``,
                or a file cannot be read.

        Example:
            >>> model = load_model("winner").calibrated(["a.png", "b.png"], [0, 2])  # doctest: +SKIP
            >>> model.predict_sets(["image.png"], coverage=0.9)  # doctest: +SKIP
        """
        items, classes = listed(given, self.config.inputs), self.config.inputs.classes
        known = to_labels("labels", labels)
        if len(known) != len(items) or not items:
            raise UserError(
                f"labels must be one for each of n > 0 inputs, got {len(known)} for {len(items)} inputs"
            )
        if known.min() < 0 or known.max() >= classes:
            raise UserError(f"labels must be in [0, {classes}), got {int(known.min())} to {int(known.max())}")
        if self.calibration is None:
            prevalences = prevalences_of(torch.bincount(known, minlength=classes))
        else:
            prevalences = torch.tensor(self.calibration.prevalences, dtype=torch.float64)
        scores = torch.cat([self.scores(inputs) for inputs in self._parts(items)])
        return replace(self, calibration=calibrate(scores, known, prevalences, self.config.key))

    def _each(
        self,
        given: Given | Sequence[Given],
        predict: Callable[[Tensor, int], list[list[Candidate]]],
        unreadable: dict[str, str] | None,
    ) -> list[list[Candidate]]:
        """Return the rows of all inputs; ``predict`` also takes the number of the first input of a part."""
        items, rows = listed(given, self.config.inputs), list[list[Candidate]]()
        for inputs in self._parts(items, unreadable):
            rows += predict(inputs, len(rows)) if len(inputs) else []
        return rows

    def _parts(self, items: Sequence[Given], unreadable: dict[str, str] | None = None) -> Iterator[Tensor]:
        """Read inputs part by part, so that a folder of any size fits into the memory."""
        for start in range(0, len(items), _AT_ONCE):
            yield read_inputs(items[start : start + _AT_ONCE], self.config.inputs, unreadable)
