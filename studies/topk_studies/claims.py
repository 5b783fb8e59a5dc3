"""What the papers found, as claims that the studies' results decide.

They stand beside the studies that they are claims of; here is what they are made with. A study of stand-ins asks them
of other data, and its claims say so. A tolerance is the least difference that is taken to matter, in points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from topk_platform import Claim, Contrast

__all__ = ["gaps", "level", "mean_of", "stand_ins"]


def gaps(
    places: Iterable[str], ours: str | Sequence[str], theirs: str | Sequence[str], *metrics: str
) -> list[Contrast]:
    """Return how far losses are ahead of others, in each place and by each metric.

    Args:
        places: ``regime/model``.
        ours: Labels of losses.
        theirs: Labels of the losses beside them.
        metrics: Such as ``"top5"``.

    Example:
        >>> [contrast.weights for contrast in gaps(["clean/mlp"], "a", ("b", "c"), "top5")][0]
        {'clean/mlp/a': 1.0, 'clean/mlp/b': -1.0}
    """
    ours, theirs = ((names,) if isinstance(names, str) else names for names in (ours, theirs))
    return [
        Contrast.between(f"{place}/{one}", f"{place}/{other}", metric)
        for place in places
        for metric in metrics
        for one in ours
        for other in theirs
    ]


def mean_of(arms: Iterable[str], metric: str) -> list[Contrast]:
    """Return each arm's own metric."""
    return [Contrast({arm: 1.0}, metric) for arm in arms]


def level(name: str, text: str, source: str, contrasts: Sequence[Contrast], tolerance: float) -> Claim:
    """Return the claim that differences are smaller than a tolerance."""
    return Claim(
        name=name, text=text, source=source, contrasts=contrasts, direction="within", tolerance=tolerance
    )


def stand_ins(*claims: Claim) -> tuple[Claim, ...]:
    """Return the claims as a stand-in's."""
    return tuple(replace(claim, stand_in=True) for claim in claims)
