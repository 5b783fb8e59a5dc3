"""Small studies on digits: what a test does not choose of their arms and budgets is as little as there can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topk_platform import Float, Loss, Model, Protocol, Recipe, Regime, Study, grid
from topk_platform.specs import Dimension, Scalar

__all__ = ["FIRST", "RATE", "searched", "small_study"]

RATE: dict[str, Dimension] = {"learning_rate": Float(0.01, 1, log=True)}
FIRST: dict[str, Scalar] = {"learning_rate": 0.1}


def searched(name: str = "cross_entropy") -> Loss:
    """Return a loss whose learning rate is searched."""
    return Loss(name, RATE, FIRST)


def small_study(
    *losses: Loss | str,
    name: str = "s",
    regimes: Sequence[Regime | str] = ("r",),
    models: Sequence[Model | str] = ("mlp",),
    k: int = 3,
    recipe: Recipe | None = None,
    metric: str = "",
    protocol: Protocol | None = None,
    **fields: Any,
) -> Study:
    """Return a study with an arm for each regime, network and loss, the losses of a regime beside one another.

    A text stands for the loss, without a search, for the network, or for a regime of plain digits of this name.
    """
    arms = grid(
        [Regime(regime, "digits") if isinstance(regime, str) else regime for regime in regimes],
        [Model(model) if isinstance(model, str) else model for model in models],
        [Loss(loss) if isinstance(loss, str) else loss for loss in losses or ("cross_entropy",)],
        k=k,
        recipe=recipe or Recipe(1),
        metric=metric,
        protocol=protocol,
    )
    return Study(name, arms, **{"topk": tuple({1, k}), **fields})
