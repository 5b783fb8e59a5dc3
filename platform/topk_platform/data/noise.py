"""Wrong training labels: drawn by class, by a confusion matrix or by a sample's features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

from topk_platform.data.dataset import Split
from topk_platform.errors import UserError

__all__ = [
    "Tracked",
    "confused_labels",
    "features_of_split",
    "instance_labels",
    "most_confused_labels",
    "pair_flipped_labels",
    "wrong_share",
]

_SPREAD = 0.1  # Xia et al.'s standard deviation of the flip probabilities
_FITTING_EPOCHS = 50


@dataclass(frozen=True)
class Tracked(Split):
    """A split that remembers the first label of each of its samples.

    Args:
        original: The first labels, int64 ``(n,)``.
    """

    original: Tensor | None = None

    @classmethod
    def of(cls, split: Split) -> Tracked:
        """Return the split as one that remembers its present labels."""
        return cls(split.inputs, split.labels, split.groups, split.names, split.labels)

    @property
    def _first(self) -> Tensor:
        return self.labels if self.original is None else self.original

    def take(self, indices: Tensor) -> Tracked:
        """Return the samples at ``indices``."""
        taken = super().take(indices)
        return Tracked(taken.inputs, taken.labels, taken.groups, taken.names, self._first[indices])


def wrong_share(train: Split) -> float:
    """Return the share of samples whose label has changed since the split was tracked; 0 if it was not tracked."""
    if not isinstance(train, Tracked) or train.original is None:
        return 0.0
    return float((train.labels != train.original).double().mean())


def pair_flipped_labels(
    labels: Tensor, superclasses: Tensor, probability: float, generator: Generator
) -> Tensor:
    """Return the labels, each replaced with ``probability`` by the next class of its superclass.

    After a superclass's last class comes its first. The only class of a superclass stays.

    Args:
        labels: int64 ``(n,)``.
        superclasses: The superclass of each class, int64 ``(classes,)``.
        probability: In ``[0, 1]``.
        generator: The source of randomness.

    Source:
        Patrini et al., Making Deep Neural Networks Robust to Label Noise: A Loss Correction Approach, CVPR 2017, 5;
        over all classes: Han et al., Co-teaching, NeurIPS 2018.
    """
    following = torch.arange(len(superclasses))
    for group in torch.unique(superclasses):
        members = (superclasses == group).nonzero()[:, 0]
        following[members] = members.roll(-1)
    flipped = torch.rand(len(labels), generator=generator, dtype=torch.float64) < probability
    return torch.where(flipped, following[labels], labels)


def confused_labels(labels: Tensor, matrix: Tensor, probability: float, generator: Generator) -> Tensor:
    """Return the labels, each replaced with ``probability`` by one drawn from its class's row of a matrix.

    Args:
        labels: int64 ``(n,)``.
        matrix: Row c holds how likely each label is for a sample of class c, float64 ``(classes, classes)``.
        probability: In ``[0, 1]``.
        generator: The source of randomness.
    """
    reached = matrix.cumsum(1)
    draw = torch.rand(len(labels), generator=generator, dtype=torch.float64) * reached[labels, -1]
    drawn = torch.empty_like(labels)
    for label in range(len(matrix)):  # class by class: all samples' rows at once would be (n, classes)
        rows = labels == label
        drawn[rows] = torch.searchsorted(reached[label], draw[rows], right=True)
    replaced = torch.rand(len(labels), generator=generator, dtype=torch.float64) < probability
    return torch.where(replaced, drawn, labels)


def instance_labels(
    features: Tensor, labels: Tensor, classes: int, probability: float, generator: Generator
) -> Tensor:
    """Return labels whose errors depend on the samples' features.

    Sample i is flipped with probability ``q_i``, drawn from a normal distribution with mean ``probability`` and
    standard deviation 0.1, cut off at 0 and 1. Its new label is drawn from the softmax of ``x_i W_y`` over the other
    classes, with a random matrix ``W_y`` of standard normal numbers for each class y.

    Args:
        features: ``(n, d)``, float64.
        labels: int64 ``(n,)``.
        classes: L.
        probability: In ``(0, 1]``.
        generator: The source of randomness.

    Source:
        Xia et al., Part-dependent Label Noise: Towards Instance-dependent Label Noise, NeurIPS 2020, algorithm 2.
    """
    flip = _truncated_normal(probability, len(labels), generator)
    likely = torch.zeros((len(labels), classes), dtype=torch.float64)
    for label in range(classes):
        weights = torch.randn((features.shape[1], classes), generator=generator, dtype=torch.float64)
        rows = (labels == label).nonzero()[:, 0]
        towards = features[rows] @ weights
        towards[:, label] = -torch.inf
        likely[rows] = flip[rows, None] * towards.softmax(1)
    likely[torch.arange(len(labels)), labels] = 1 - flip
    reached = likely.cumsum(1)
    draw = torch.rand(len(labels), generator=generator, dtype=torch.float64) * reached[:, -1]
    return torch.searchsorted(reached, draw[:, None], right=True)[:, 0]


def _truncated_normal(mean: float, count: int, generator: Generator) -> Tensor:
    """Draw from a normal distribution cut off at 0 and 1, by its inverse distribution function."""
    ends = torch.special.ndtr(torch.tensor([-mean, 1 - mean], dtype=torch.float64) / _SPREAD)
    draw = torch.rand(count, generator=generator, dtype=torch.float64)
    drawn: Tensor = mean + _SPREAD * torch.special.ndtri(ends[0] + draw * (ends[1] - ends[0]))
    return drawn.clamp(0, 1)


def most_confused_labels(features: Tensor, labels: Tensor, classes: int, probability: float) -> Tensor:
    """Return labels in which the most confusing samples have a wrong label: the most likely other class.

    A softmax regression learns the true labels in 50 steps over all samples; ``S`` is its softmax, averaged over the
    steps. The ``probability · n`` samples with the largest ``max_{j ≠ y} S_j`` get the maximising class j as their
    label.

    Args:
        features: ``(n, d)``, float64.
        labels: int64 ``(n,)``.
        classes: L.
        probability: The share of labels to change, in ``[0, 1]``.

    Source:
        Chen et al., Beyond Class-Conditional Assumption: A Primary Attempt to Combat Instance-Dependent Label Noise,
        AAAI 2021, algorithm 1. It trains a deep network; this function trains a linear one on given features.
    """
    averaged = _mean_softmax(features, labels, classes)
    averaged[torch.arange(len(labels)), labels] = -1.0
    score, other = averaged.max(1)
    chosen = score.argsort(descending=True, stable=True)[: round(probability * len(labels))]
    noisy = labels.clone()
    noisy[chosen] = other[chosen]
    return noisy


def _mean_softmax(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return a regression's softmax, averaged over its steps of accelerated gradient descent, ``(n, classes)``."""
    spread = features.std(0, correction=0)
    x = (features - features.mean(0)) / torch.where(spread > 0, spread, torch.ones_like(spread))
    x = torch.cat([x, x.new_ones(len(x), 1)], 1)
    target = functional.one_hot(labels, classes).double()
    rate = 2 * len(x) / float(torch.linalg.matrix_norm(x, 2)) ** 2  # the inverse of the largest curvature
    weights = before = x.new_zeros(x.shape[1], classes)
    total = torch.zeros_like(target)
    for step in range(_FITTING_EPOCHS):
        ahead = weights + step / (step + 3) * (weights - before)
        gradient = x.T @ ((x @ ahead).softmax(1) - target) / len(x)
        before, weights = weights, ahead - rate * gradient
        total += (x @ weights).softmax(1)
    return total / _FITTING_EPOCHS


def features_of_split(split: Split) -> Tensor:
    """Return a split's inputs as float64 features ``(n, d)``; images are divided by 255.

    Raises:
        UserError: if the inputs are images in files.
    """
    if not isinstance(split.inputs, Tensor):
        raise UserError(
            "InstanceNoise needs inputs in memory, got images in files: take image_features of the dataset"
        )
    inputs = split.inputs.flatten(1).double()
    return inputs / 255 if split.inputs.dtype == torch.uint8 else inputs
