"""Which characters have the same shape, and what nobody can therefore know."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from typefaces.pictures import Pictures, distances

__all__ = ["ceiling", "report", "same_shapes"]

_TOLERANCES = (0.1, 0.2, 0.3)
_SHOWN = 24
_GUESSES = (1, 2, 3, 5)


def same_shapes(pictures: Pictures, tolerance: float) -> NDArray[np.bool_]:
    """Return which characters of each family have pictures that differ by less than a tolerance ``(families, C, C)``.

    Args:
        pictures: ``(families, characters, size, size)``.
        tolerance: As :func:`~typefaces.pictures.distances` measures it.
    """
    return np.stack([distances(family) < tolerance for family in pictures])


def ceiling(same: NDArray[np.bool_], guesses: int) -> float:
    """Return the best possible top-K accuracy of who knows the typeface: the mean of ``min(K, n) / n``.

    n is how many characters of the typeface have the shape that is seen.

    Args:
        same: What :func:`same_shapes` returned.
        guesses: K.

    Example:
        >>> ceiling(np.array([[[1, 1, 0], [1, 1, 0], [0, 0, 1]]], bool), guesses=1).__round__(3)
        0.667
    """
    alike = same.sum(2)
    return float((np.minimum(guesses, alike) / alike).mean())


def report(pictures: Pictures, characters: str) -> str:
    """Return two tables of Markdown: the ceilings, and the pairs of one shape by how many families they are it in.

    Each for several tolerances, for where one shape ends is a matter of who looks.
    """
    same = {tolerance: same_shapes(pictures, tolerance) for tolerance in _TOLERANCES}
    counts = {tolerance: np.triu(found.sum(0), 1) for tolerance, found in same.items()}
    most = np.argsort(-counts[_TOLERANCES[-1]], axis=None, kind="stable")[:_SHOWN]
    pairs = [np.unravel_index(place, counts[_TOLERANCES[0]].shape) for place in most]
    ceilings = [
        [f"top-{k}", *(f"{100 * ceiling(found, k):.1f} %" for found in same.values())] for k in _GUESSES
    ]
    shown = [[f"{characters[a]} {characters[b]}", *(str(n[a, b]) for n in counts.values())] for a, b in pairs]
    heads = [f"shapes differ by less than {tolerance:g}" for tolerance in _TOLERANCES]
    return (
        _table(["best possible", *heads], ceilings)
        + "\n"
        + _table([f"of {len(pictures)} families", *heads], shown)
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
