"""Places in a plan that are still free."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

__all__ = ["Free", "Place"]

Place = tuple[int, int]
"""Rank and number: 0 and a search trial's, or the rank of a confirmation's seed and the number that it confirms."""


class Free:
    """A set of places that knows its least one.

    Args:
        places: In rising order.
    """

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._heap = list(places)
        self._there = set(self._heap)

    def __len__(self) -> int:
        return len(self._there)

    def add(self, place: Place) -> None:
        """Add a place, if it is not there yet."""
        if place not in self._there:
            self._there.add(place)
            heapq.heappush(self._heap, place)

    def discard(self, place: Place) -> None:
        """Remove a place, if it is there."""
        self._there.discard(place)

    def keep(self, wanted: Callable[[Place], bool]) -> None:
        """Remove all places but those wanted."""
        self._there = set(filter(wanted, self._there))

    @property
    def first(self) -> Place | None:
        """The least place, or None."""
        while self._heap and self._heap[0] not in self._there:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None
