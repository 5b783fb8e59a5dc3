"""Selectors: small networks that look at a classifier's scores and choose how many candidates an image gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from topk_losses.functional import cardinality_costs, cardinality_loss
from topk_platform.metrics import log_probabilities

__all__ = ["CARDINALITIES", "Selectors", "train_selectors"]

CARDINALITIES = (1, 2, 4, 8)
"""The numbers of candidates to choose from, as in the paper."""

_HIDDEN = 64
_EPOCHS = 50
_BATCH = 128
_RATE, _DECAY = 1e-3, 1e-5  # Adam's values in the paper


@dataclass(frozen=True)
class Selectors:
    """Selectors for several penalties, each a network of two layers.

    Args:
        cardinalities: The numbers of candidates to choose from.
        mean: The mean of each input in the training samples, ``(L,)``.
        deviation: Their standard deviation, ``(L,)``.
        weights: First weights ``(P, L, H)`` and biases ``(P, 1, H)``, second weights ``(P, H, C)`` and biases
            ``(P, 1, C)``, for P penalties and C cardinalities.
    """

    cardinalities: tuple[int, ...]
    mean: Tensor
    deviation: Tensor
    weights: tuple[Tensor, ...]

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the selectors' scores of each choice, ``(P, n, C)``, for sorted log probabilities ``(n, L)``."""
        first, bias, second, last = self.weights
        hidden = ((inputs - self.mean) / self.deviation @ first + bias).relu()
        return hidden @ second + last

    @torch.no_grad()
    def chosen(self, scores: Tensor) -> Tensor:
        """Return how many candidates each sample gets, int64 ``(P, n)``, from the classifier's scores ``(n, L)``."""
        return torch.tensor(self.cardinalities)[self(_inputs(scores)).argmax(-1)]


def train_selectors(
    scores: Tensor,
    labels: Tensor,
    penalties: Sequence[float],
    growth: str = "log",
    *,
    seed: int = 0,
    epochs: int = _EPOCHS,
) -> Selectors:
    """Return selectors that are trained on a classifier's scores, one for each penalty.

    The selectors train at the same time, on the same batches. Their inputs are the classifier's log probabilities in
    descending order: with these, few samples suffice to learn how sure the classifier is. Each selector is a network of
    two layers with 64 hidden units, trained by Adam with the paper's values: rate 0.001, batches of 128, weight decay
    0.00001. The samples should not be those that trained the classifier, because it is right too often on these.

    Args:
        scores: The classifier's scores ``(n, L)``.
        labels: int64 ``(n,)``.
        penalties: The penalty λ of each selector.
        growth: ``"log"`` or ``"linear"``, see :func:`~topk_losses.functional.cardinality_costs`.
        seed: The seed of the initial weights and of the batches.
        epochs: The number of epochs; the paper does not give it.

    Source:
        Cortes, Mao, Mohri, Mohri, Zhong: Cardinality-Aware Set Prediction and Top-k Classification, NeurIPS 2024.
    """
    generator = Generator().manual_seed(seed)
    inputs = _inputs(scores)
    cardinalities = tuple(k for k in CARDINALITIES if k <= scores.shape[1])
    costs = torch.stack([cardinality_costs(scores, labels, cardinalities, p, growth) for p in penalties])
    selectors = Selectors(
        cardinalities,
        inputs.mean(0),
        inputs.std(0, correction=0).clamp(min=1e-6),
        _initial(len(penalties), scores.shape[1], len(cardinalities), generator),
    )
    optimizer = torch.optim.Adam(selectors.weights, lr=_RATE, weight_decay=_DECAY)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(labels), generator=generator), _BATCH):
            optimizer.zero_grad()
            losses = cardinality_loss(
                selectors(inputs[rows]).flatten(0, 1), costs[:, rows].flatten(0, 1), reduction="sum"
            )
            (losses / len(rows)).backward()  # type: ignore[no-untyped-call] # the sum over selectors of their mean losses
            optimizer.step()
    return selectors


def _inputs(scores: Tensor) -> Tensor:
    return log_probabilities(scores).sort(1, descending=True).values.float()


def _initial(penalties: int, inputs: int, outputs: int, generator: Generator) -> tuple[Tensor, ...]:
    """Return the same initial weights for each penalty, drawn as ``torch.nn.Linear`` draws them."""
    sizes = ((inputs, _HIDDEN), (_HIDDEN, outputs))
    weights: list[Tensor] = []
    for rows, columns in sizes:
        for shape in ((1, rows, columns), (1, 1, columns)):
            drawn = torch.rand(shape, generator=generator).mul(2).sub(1) / math.sqrt(rows)
            weights.append(nn.Parameter(drawn.repeat(penalties, 1, 1)))
    return tuple(weights)
