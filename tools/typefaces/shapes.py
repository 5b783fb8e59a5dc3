"""Which characters have the same shape, and what nobody can therefore know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from typefaces.choosing import groups_of
from typefaces.pictures import Pictures, distances

__all__ = ["ceiling", "report", "same_shapes"]

_TOLERANCES = (0.1, 0.2, 0.3)
_SHOWN = 24
_GUESSES = (1, 2, 3, 5)


def same_shapes(pictures: Pictures, tolerance: float) -> list[list[list[int]]]:
    """Return, of each family, the groups of characters whose pictures are the same but for a tolerance.

    Args:
        pictures: ``(families, characters, size, size)``.
        tolerance: Least difference of two shapes, by :func:`~typefaces.pictures.distances`.
    """
    return [groups_of(distances(family) < tolerance) for family in pictures]


def ceiling(groups: list[list[list[int]]], guesses: int) -> float:
    """Return the best possible top-K accuracy of who knows the typeface but not the size: ``min(K, |group|)`` of each.

    Args:
        groups: What :func:`same_shapes` returned.
        guesses: K.

    Example:
        >>> ceiling([[[0, 1, 2], [3]]], guesses=1)
        0.5
    """
    shares = [sum(min(guesses, len(group)) for group in family) / sum(map(len, family)) for family in groups]
    return float(np.mean(shares))


def report(pictures: Pictures, characters: str) -> str:
    """Return two tables of Markdown: the ceilings, and the pairs of one shape by how many families they are it in.

    Each for several tolerances, for where one shape ends is a matter of who looks.
    """
    groups = {tolerance: same_shapes(pictures, tolerance) for tolerance in _TOLERANCES}
    pairs = {tolerance: Counter(_pairs(found)) for tolerance, found in groups.items()}
    most = pairs[_TOLERANCES[1]].most_common(_SHOWN)
    ceilings = [[f"top-{k}", *(f"{100 * ceiling(found, k):.1f} %" for found in groups.values())] for k in _GUESSES]
    counts = [
        [f"{characters[pair[0]]} {characters[pair[1]]}", *(str(found[pair]) for found in pairs.values())]
        for pair, _ in most
    ]
    heads = [f"shapes differ by less than {tolerance:g}" for tolerance in _TOLERANCES]
    return _table(["best possible", *heads], ceilings) + "\n" + _table([f"of {len(pictures)} families", *heads], counts)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _pairs(families: list[list[list[int]]]) -> Iterator[tuple[int, int]]:
    yield from (pair for family in families for group in family for pair in combinations(group, 2))
