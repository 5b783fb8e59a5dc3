"""When does cross-entropy fail in top-2 accuracy? sawada2020's three experiments on points around a circle."""

from __future__ import annotations

from collections.abc import Iterable

from topk_platform import Loss, Model, Protocol, Regime, Study, grid
from topk_platform.recipes import SAWADA2020_RING

__all__ = ["ring_capacity", "ring_modes", "ring_overlap"]

_SOURCE = "sawada2020 IV"
_SEEDS = 10


def _study(name: str, regimes: Iterable[Regime], models: Iterable[Model], description: str) -> Study:
    arms = grid(
        regimes,
        models,
        [Loss("cross_entropy"), Loss("topk_grouping"), Loss("topk_transition")],
        k=2,
        recipe=SAWADA2020_RING,
        protocol=Protocol(ensemble=_SEEDS),
    )
    return Study(
        name=name,
        arms=arms,
        topk=(1, 2),
        seeds=_SEEDS,
        show=("top1", "top2"),
        description=f"{_SOURCE}: {description}; K = 2",
    )


def _modes(distance: int) -> Regime:
    return Regime(f"distance-{distance}", "ring", options={"sigma": 10, "distance": distance})


def ring_overlap() -> Study:
    """Return experiment 1: one mode a class, its deviation σ from 10° to 30°, a linear classifier.

    Nothing is searched: ten fresh draws of the data train each loss with fixed settings, and the last epoch's weights
    are tested.

    Example:
        >>> [arm.regime.name for arm in ring_overlap().arms[::3]]
        ['sigma-10', 'sigma-15', 'sigma-20', 'sigma-25', 'sigma-30']
    """
    regimes = [Regime(f"sigma-{sigma}", "ring", options={"sigma": sigma}) for sigma in range(10, 31, 5)]
    return _study("ring_overlap", regimes, [Model("linear")], "six classes that overlap, σ from 10° to 30°")


def ring_modes() -> Study:
    """Return experiment 2: a third of each class lies in a minor mode, 30° to 90° away; a linear classifier.

    Example:
        >>> [arm.regime.name for arm in ring_modes().arms[::3]]
        ['distance-30', 'distance-45', 'distance-60', 'distance-75', 'distance-90']
    """
    regimes = [_modes(distance) for distance in range(30, 91, 15)]
    return _study("ring_modes", regimes, [Model("linear")], "six classes of two modes, 30° to 90° apart")


def ring_capacity() -> Study:
    """Return experiment 3: minor modes 90° away, and a hidden layer of 2 to 32 units.

    Example:
        >>> [arm.model.label for arm in ring_capacity().arms[::3]]
        ['units-2', 'units-4', 'units-8', 'units-16', 'units-32']
    """
    models = [Model("mlp", {"hidden": units}, label=f"units-{units}") for units in (2, 4, 8, 16, 32)]
    return _study("ring_capacity", [_modes(90)], models, "modes 90° apart, a hidden layer of 2 to 32 units")
