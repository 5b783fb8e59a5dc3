"""A loss of one's own, Poly-1 cross-entropy (Leng et al. 2022): -log p + ε (1 - p), certified and searched."""

from torch import Tensor

from topk_losses import Loss
from topk_losses.testing import LossContract
from topk_platform import Float, Model, Recipe, Regime, Study, grid
from topk_platform import Loss as Searched


class Poly1(Loss):
    def __init__(self, epsilon: float = 1.0, **shared: object) -> None:
        super().__init__(**shared)
        self.epsilon = epsilon

    def rows(self, scores: Tensor, labels: Tensor) -> Tensor:  # (M, L) and (M, C) to (M, C)
        logs = scores.log_softmax(1).gather(1, labels)
        return self.epsilon * (1 - logs.exp()) - logs


class TestPoly1(LossContract):  # for pytest
    soft_targets = True

    def make(self, **shared: object) -> Poly1:
        return Poly1(epsilon=0.5, **shared)


RATE, FIRST = Float(0.01, 1, log=True), {"learning_rate": 0.1}
BESIDE = Searched("cross_entropy", {"learning_rate": RATE}, FIRST)
OWN = Searched("own_loss:Poly1", {"learning_rate": RATE, "epsilon": Float(0, 5)}, {**FIRST, "epsilon": 1.0})
study = Study(
    name="own-loss",
    arms=grid([Regime("digits", "digits")], [Model("mlp")], [BESIDE, OWN], k=3, recipe=Recipe(epochs=10)),
    topk=(1, 3),
    trials=5,
    seeds=3,
)
