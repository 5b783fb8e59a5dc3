"""When does cross-entropy fail in top-2 accuracy? sawada2020's three experiments on points around a circle."""

from __future__ import annotations

from functools import partial

from topk_platform import Claim, Contrast, Loss, Model, Protocol, Regime, Study, grid
from topk_studies.claims import gaps
from topk_studies.recipes import SAWADA2020_RING

__all__ = ["ring"]

_SOURCE = "sawada2020 IV"
_SEEDS = 10
_CE, _TOP2 = "cross_entropy", ("topk_grouping", "topk_transition")
_MATTERS = 0.5  # points


def ring() -> Study:
    """Return sawada2020's first three experiments: points around a circle, six classes, two guesses.

    Nothing is searched: each loss is trained with fixed settings on ten fresh draws of the data, and the weights of the
    last epoch are tested.

    - ``sigma-S``: one mode per class, whose standard deviation σ is 10° to 30°, and a linear classifier;
    - ``distance-D/linear``: two modes per class, D = 30° to 90° apart;
    - ``distance-90/units-M``: the same at 90°, and a network with one hidden layer of 2 to 32 units.

    Example:
        >>> [arm.regime.name for arm in ring().only("sigma-*").arms[::3]]
        ['sigma-10', 'sigma-15', 'sigma-20', 'sigma-25', 'sigma-30']
        >>> [arm.model.label for arm in ring().only("distance-90/units-*").arms[::3]]
        ['units-2', 'units-4', 'units-8', 'units-16', 'units-32']
    """
    overlap = [Regime(f"sigma-{sigma}", "ring", options={"sigma": sigma}) for sigma in range(10, 31, 5)]
    modes = [_modes(distance) for distance in range(30, 91, 15)]
    networks = [Model("mlp", {"hidden": units}, label=f"units-{units}") for units in (2, 4, 8, 16, 32)]
    losses = [Loss("cross_entropy"), Loss("topk_grouping"), Loss("topk_transition")]
    arms_of = partial(grid, losses=losses, k=2, recipe=SAWADA2020_RING, protocol=Protocol(ensemble=_SEEDS))
    return Study(
        name="ring",
        arms=(*arms_of(overlap + modes, [Model("linear")]), *arms_of([_modes(90)], networks)),
        topk=(1, 2),
        seeds=_SEEDS,
        show=("top1", "top2"),
        description=f"{_SOURCE}: points around a circle that overlap, have two modes, or meet small networks; K = 2",
        claims=(*_overlap_claims(), *_modes_claims(), *_capacity_claims()),
    )


def _modes(distance: int) -> Regime:
    return Regime(f"distance-{distance}", "ring", options={"sigma": 10, "distance": distance})


def _overlap_claims() -> list[Claim]:
    claim = partial(Claim, source=f"{_SOURCE}-A, Fig. 2")
    columns = [f"sigma-{sigma}/linear" for sigma in range(10, 31, 5)]
    shrinking = [
        early.minus(late)
        for early, late in zip(
            gaps(columns[1:2], _CE, _TOP2, "top2"), gaps(columns[4:], _CE, _TOP2, "top2"), strict=True
        )
    ]
    return [
        claim(
            name="cross-entropy-best-or-level",
            text="With any overlap, cross-entropy is best or nearly best of all losses in top-1 and in top-2.",
            contrasts=gaps(columns, _CE, _TOP2, "top1", "top2"),
            bound=-_MATTERS,
        ),
        claim(
            name="ahead-where-little-overlaps",
            text="Below σ = 20°, where classes hardly overlap, cross-entropy beats the top-2 losses in top-2.",
            contrasts=gaps(columns[:2], _CE, _TOP2, "top2"),
        ),
        claim(
            name="approached-where-much-overlaps",
            text="With more overlap the top-2 losses are less behind cross-entropy in top-2: at 30° less than at 15°.",
            contrasts=shrinking,
        ),
    ]


def _modes_claims() -> list[Claim]:
    claim = partial(Claim, source=f"{_SOURCE}-B, Fig. 3")
    columns = {d: f"distance-{d}/linear" for d in range(30, 91, 15)}
    far = [columns[d] for d in (60, 75, 90)]
    ahead = [
        claim(
            name=f"{loss.removeprefix('topk_')}-beats-cross-entropy",
            text=f"For d ≥ 60° top-2 {loss.removeprefix('topk_')} beats cross-entropy in top-2 accuracy.",
            contrasts=gaps(far, loss, _CE, "top2"),
            tolerance=0.1,
        )
        for loss in _TOP2
    ]
    return [
        *ahead,
        claim(
            name="cross-entropy-ahead-where-modes-are-near",
            text="Below d = 45° cross-entropy beats the top-2 losses in top-1 and in top-2 accuracy.",
            contrasts=gaps([columns[30]], _CE, _TOP2, "top1", "top2"),
            tolerance=0.1,
        ),
        claim(
            name="trade-off",
            text="Above d = 60° the top-2 losses pay with top-1 accuracy: cross-entropy beats them in top-1.",
            contrasts=gaps(far[1:], _CE, _TOP2, "top1"),
            tolerance=_MATTERS,
        ),
    ]


def _capacity_claims() -> list[Claim]:
    claim = partial(Claim, source=f"{_SOURCE}-C, Fig. 4")
    small = [
        claim(
            name=f"{loss.removeprefix('topk_')}-beats-cross-entropy-with-{units}-units",
            text=f"With {units} hidden units top-2 {loss.removeprefix('topk_')} beats cross-entropy in top-2.",
            contrasts=gaps([f"distance-90/units-{units}"], loss, _CE, "top2"),
            tolerance=_MATTERS,
        )
        for units in (2, 4)
        for loss in _TOP2
    ]
    large = [f"distance-90/units-{units}" for units in (8, 16, 32)]
    best = [
        claim(
            name=f"cross-entropy-best-in-{metric}-from-8-units",
            text=f"With 8 or more hidden units cross-entropy is the best of all losses in top-{metric[-1]}.",
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
        claim(
            name="capacity-decides",
            text="More units remove the advantage of the top-2 losses in top-2: it is larger with 2 units than with 8.",
            contrasts=narrowing,
            tolerance=_MATTERS,
        ),
    ]
