"""The slots of a search or of its confirmations that are still free."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

__all__ = ["FreeSlots", "Turn"]

Turn = tuple[int, int]
"""The order of a search's slots: the rank of a confirmation's seed, or 0 for a search trial; then the number."""


class FreeSlots:
    """A set of slots, given by their turns, that knows the first one.

    Args:
        turns: The turns, in rising order.
    """

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._heap = list(turns)
        self._there = set(self._heap)

    def __len__(self) -> int:
        return len(self._there)

    def add(self, turn: Turn) -> None:
        """Add a slot, if it is not there yet."""
        if turn not in self._there:
            self._there.add(turn)
            heapq.heappush(self._heap, turn)

    def discard(self, turn: Turn) -> None:
        """Remove a slot, if it is there."""
        self._there.discard(turn)

    def keep(self, condition: Callable[[Turn], bool]) -> None:
        """Remove all slots that do not meet a condition."""
        self._there = set(filter(condition, self._there))

    @property
    def first(self) -> Turn | None:
        """The slot whose turn is first, or None."""
        while self._heap and self._heap[0] not in self._there:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None
