"""Which characters have the same shape, and what nobody can therefore know."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from typefaces.pictures import Pictures, distances

__all__ = ["ceiling", "report"]

_TOLERANCES = (0.1, 0.2, 0.3)
_SHOWN = 24
_GUESSES = (1, 2, 3, 5)


def ceiling(alike: NDArray[np.int64], guesses: int) -> float:
    """Return the best possible top-K accuracy of who knows the typeface: the mean of ``min(K, n) / n``.

    Args:
        alike: n, how many characters of the typeface have the shape that is seen, itself included.
        guesses: K.

    Example:
        >>> ceiling(np.array([[2, 2, 1]]), guesses=1).__round__(3)
        0.667
    """
    return float((np.minimum(guesses, alike) / alike).mean())


def report(pictures: Pictures, characters: str) -> str:
    """Return two tables of Markdown: the ceilings, and the pairs of one shape by how many families they are it in.

    Each for several tolerances, for where one shape ends is a matter of who looks.
    """
    counts = {tolerance: np.zeros((len(characters),) * 2, np.int32) for tolerance in _TOLERANCES}
    alike: dict[float, list[NDArray[np.int64]]] = {tolerance: [] for tolerance in _TOLERANCES}
    for family in pictures:
        apart = distances(family)
        for tolerance in _TOLERANCES:
            same = apart < tolerance
            alike[tolerance].append(same.sum(1))
            counts[tolerance] += np.triu(same, 1)
    heads = [f"shapes differ by less than {tolerance:g}" for tolerance in _TOLERANCES]
    ceilings = [
        [f"top-{k}", *(f"{100 * ceiling(np.stack(result), k):.1f} %" for result in alike.values())]
        for k in _GUESSES
    ]
    shown = [
        [f"{characters[a]} {characters[b]}", *(str(n[a, b]) for n in counts.values())]
        for a, b in _most(counts[_TOLERANCES[-1]])
    ]
    return (
        _table(["best possible", *heads], ceilings)
        + "\n"
        + _table([f"of {len(pictures)} families", *heads], shown)
    )


def _most(counts: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Return the pairs with the largest counts, largest first."""
    places = np.argsort(-counts, axis=None, kind="stable")[:_SHOWN]
    return [(int(index) // len(counts), int(index) % len(counts)) for index in places]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
