"""The papers' findings, as claims that the studies' results decide.

The claims are defined beside their studies; this module has the functions that build them. A stand-in study asks the
same questions of other data, and its claims say so. A tolerance is the least difference, in points, that is taken to
matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from topk_platform import Claim, Contrast

__all__ = ["average_gap", "gaps", "mean_of", "stand_ins"]


def gaps(
    columns: Iterable[str], ours: str | Sequence[str], theirs: str | Sequence[str], *metrics: str
) -> list[Contrast]:
    """Return the differences between losses, in each column and by each metric.

    Args:
        columns: ``regime/model``.
        ours: Labels of losses.
        theirs: Labels of the losses compared with.
        metrics: Such as ``"top5"``.

    Example:
        >>> [contrast.weights for contrast in gaps(["clean/mlp"], "a", ("b", "c"), "top5")][0]
        {'clean/mlp/a': 1.0, 'clean/mlp/b': -1.0}
    """
    ours, theirs = ((names,) if isinstance(names, str) else names for names in (ours, theirs))
    return [
        Contrast.between(f"{column}/{our}", f"{column}/{their}", metric)
        for column in columns
        for metric in metrics
        for our in ours
        for their in theirs
    ]


def average_gap(columns: Sequence[str], ours: str, theirs: str, metric: str) -> Contrast:
    """Return the difference between two losses, averaged over regimes with equal weights: one question, asked once.

    Args:
        columns: ``regime/model``.
        ours: Label of a loss.
        theirs: Label of the loss compared with.
        metric: Such as ``"top5"``.

    Example:
        >>> average_gap(["few/mlp", "many/mlp"], "a", "b", "top5").weights["many/mlp/b"]
        -0.5
    """
    share = 1 / len(columns)
    signs = {ours: share, theirs: -share}
    return Contrast({f"{c}/{loss}": weight for c in columns for loss, weight in signs.items()}, metric)


def mean_of(arms: Iterable[str], metric: str) -> list[Contrast]:
    """Return contrasts of each arm's own mean."""
    return [Contrast({arm: 1.0}, metric) for arm in arms]


def stand_ins(*claims: Claim) -> tuple[Claim, ...]:
    """Return the claims marked as those of a stand-in."""
    return tuple(replace(claim, stand_in=True) for claim in claims)
