"""Measures of one's own: the mean reciprocal rank, from the ranks, and what wrong classes cost, from the scores."""

import numpy as np
from torch import Tensor, nn

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.records.per_image import Ranks


def reciprocal_rank(ranks: Ranks) -> np.ndarray:
    """Return a value for each test image."""
    return 1 / (1 + ranks.greater + ranks.tied / 2)


def cost(scores: Tensor, labels: Tensor, network: nn.Module) -> dict[str, float | int]:
    """Return what the study shows as cost, of which more must be better, and another scalar for the record."""
    apart = (scores.argmax(1) - labels).abs().double().mean()
    return {"cost": -float(apart), "weights": sum(weight.numel() for weight in network.parameters())}


SPACE, FIRST = {"learning_rate": Float(0.01, 1, log=True)}, {"learning_rate": 0.1}
LOSSES = [
    Loss("cross_entropy", SPACE, FIRST),
    Loss("topk_hinge", SPACE, FIRST, then=[{"learning_rate": 0.3}]),
]
study = Study(
    name="own-measure",
    arms=grid([Regime("digits", "digits")], [Model("mlp")], LOSSES, k=3, recipe=Recipe(epochs=5)),
    topk=(1, 3),
    trials=3,
    seeds=3,
    show=("top3", reciprocal_rank, cost),
)
