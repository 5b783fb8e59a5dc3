"""When does cross-entropy fail in top-2 accuracy? sawada2020's three experiments on points around a circle."""

from __future__ import annotations

from collections.abc import Iterable

from topk_platform import Claim, Contrast, Loss, Model, Protocol, Regime, Study, grid
from topk_platform.recipes import SAWADA2020_RING
from topk_studies.claims import gaps

__all__ = ["ring_capacity", "ring_modes", "ring_overlap"]

_SOURCE = "sawada2020 IV"
_SEEDS = 10
_CE, _TOP2 = "cross_entropy", ("topk_grouping", "topk_transition")
_MATTERS = 0.5  # points


def _study(
    name: str, regimes: Iterable[Regime], models: Iterable[Model], description: str, claims: Iterable[Claim]
) -> Study:
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
        claims=tuple(claims),
    )


def _modes(distance: int) -> Regime:
    return Regime(f"distance-{distance}", "ring", options={"sigma": 10, "distance": distance})


def ring_overlap() -> Study:
    """Return experiment 1: one mode per class, whose standard deviation σ is 10° to 30°, and a linear classifier.

    Nothing is searched: each loss is trained with fixed settings on ten fresh draws of the data, and the weights of the
    last epoch are tested.

    Example:
        >>> [arm.regime.name for arm in ring_overlap().arms[::3]]
        ['sigma-10', 'sigma-15', 'sigma-20', 'sigma-25', 'sigma-30']
    """
    regimes = [Regime(f"sigma-{sigma}", "ring", options={"sigma": sigma}) for sigma in range(10, 31, 5)]
    text = "six classes that overlap, σ from 10° to 30°"
    return _study("ring_overlap", regimes, [Model("linear")], text, _overlap_claims())


def _overlap_claims() -> list[Claim]:
    source = f"{_SOURCE}-A, Fig. 2"
    places = [f"sigma-{sigma}/linear" for sigma in range(10, 31, 5)]
    shrinking = [
        early.minus(late)
        for early, late in zip(
            gaps(places[1:2], _CE, _TOP2, "top2"), gaps(places[4:], _CE, _TOP2, "top2"), strict=True
        )
    ]
    return [
        Claim(
            name="cross-entropy-best-or-level",
            text="With any overlap, cross-entropy is best or nearly best of all losses in top-1 and in top-2.",
            source=source,
            contrasts=gaps(places, _CE, _TOP2, "top1", "top2"),
            bound=-_MATTERS,
        ),
        Claim(
            name="ahead-where-little-overlaps",
            text="Below σ = 20°, where classes hardly overlap, cross-entropy beats the top-2 losses in top-2.",
            source=source,
            contrasts=gaps(places[:2], _CE, _TOP2, "top2"),
        ),
        Claim(
            name="approached-where-much-overlaps",
            text="With more overlap the top-2 losses are less behind cross-entropy in top-2: at 30° less than at 15°.",
            source=source,
            contrasts=shrinking,
        ),
    ]


def ring_modes() -> Study:
    """Return experiment 2: a third of each class lies in a minor mode 30° to 90° away, and the classifier is linear.

    Example:
        >>> [arm.regime.name for arm in ring_modes().arms[::3]]
        ['distance-30', 'distance-45', 'distance-60', 'distance-75', 'distance-90']
    """
    regimes = [_modes(distance) for distance in range(30, 91, 15)]
    text = "six classes of two modes, 30° to 90° apart"
    return _study("ring_modes", regimes, [Model("linear")], text, _modes_claims())


def _modes_claims() -> list[Claim]:
    source = f"{_SOURCE}-B, Fig. 3"
    places = {d: f"distance-{d}/linear" for d in range(30, 91, 15)}
    far = [places[d] for d in (60, 75, 90)]
    ahead = [
        Claim(
            name=f"{loss.removeprefix('topk_')}-beats-cross-entropy",
            text=f"For d ≥ 60° top-2 {loss.removeprefix('topk_')} beats cross-entropy in top-2 accuracy.",
            source=source,
            contrasts=gaps(far, loss, _CE, "top2"),
            tolerance=0.1,
        )
        for loss in _TOP2
    ]
    return [
        *ahead,
        Claim(
            name="cross-entropy-ahead-where-modes-are-near",
            text="Below d = 45° cross-entropy beats the top-2 losses in top-1 and in top-2 accuracy.",
            source=source,
            contrasts=gaps([places[30]], _CE, _TOP2, "top1", "top2"),
            tolerance=0.1,
        ),
        Claim(
            name="trade-off",
            text="Above d = 60° the top-2 losses pay with top-1 accuracy: cross-entropy beats them in top-1.",
            source=source,
            contrasts=gaps(far[1:], _CE, _TOP2, "top1"),
            tolerance=_MATTERS,
        ),
    ]


def ring_capacity() -> Study:
    """Return experiment 3: the minor modes are 90° away, and the network has one hidden layer of 2 to 32 units.

    Example:
        >>> [arm.model.label for arm in ring_capacity().arms[::3]]
        ['units-2', 'units-4', 'units-8', 'units-16', 'units-32']
    """
    models = [Model("mlp", {"hidden": units}, label=f"units-{units}") for units in (2, 4, 8, 16, 32)]
    text = "modes 90° apart, a hidden layer of 2 to 32 units"
    return _study("ring_capacity", [_modes(90)], models, text, _capacity_claims())


def _capacity_claims() -> list[Claim]:
    source = f"{_SOURCE}-C, Fig. 4"
    small = [
        Claim(
            name=f"{loss.removeprefix('topk_')}-beats-cross-entropy-with-{units}-units",
            text=f"With {units} hidden units top-2 {loss.removeprefix('topk_')} beats cross-entropy in top-2.",
            source=source,
            contrasts=gaps([f"distance-90/units-{units}"], loss, _CE, "top2"),
            tolerance=_MATTERS,
        )
        for units in (2, 4)
        for loss in _TOP2
    ]
    large = [f"distance-90/units-{units}" for units in (8, 16, 32)]
    best = [
        Claim(
            name=f"cross-entropy-best-in-{metric}-from-8-units",
            text=f"With 8 or more hidden units cross-entropy is the best of all losses in top-{metric[-1]}.",
            source=source,
            contrasts=gaps(large, _CE, _TOP2, metric),
            tolerance=0.1,
        )
        for metric in ("top1", "top2")
    ]
    narrowing = [
        Contrast.between(f"distance-90/units-2/{loss}", f"distance-90/units-2/{_CE}", "top2").minus(
            Contrast.between(f"distance-90/units-8/{loss}", f"distance-90/units-8/{_CE}", "top2")
        )
        for loss in _TOP2
    ]
    return [
        *small,
        *best,
        Claim(
            name="capacity-decides",
            text="More units remove the advantage of the top-2 losses in top-2: it is larger with 2 units than with 8.",
            source=source,
            contrasts=narrowing,
            tolerance=_MATTERS,
        ),
    ]
