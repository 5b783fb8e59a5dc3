"""The order of arms: a free worker goes to the arm that would otherwise keep the study waiting longest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topk_platform.protocol.arm_board import ArmBoard

__all__ = ["Order", "Pace", "alike"]

Pace = Callable[[str], float]
"""The expected seconds of an arm's training (or its ensemble's), by its identity."""


def alike(_arm_id: str) -> float:
    """Treat all trainings as equally long."""
    return 1.0


class Order:
    """The order in which arms are given free workers.

    An arm's search trials wait for one another, and its confirmations wait for all of them. An arm may also wait for
    another arm's search. The arm with the longest chain of such trainings goes first, because more workers do not make
    that chain shorter. Among equals, the arm with the most work left goes first. No result depends on the order.

    Args:
        arms: The boards of all arms.
    """

    def __init__(self, arms: Iterable[ArmBoard]) -> None:
        self._waiting: dict[str, list[ArmBoard]] = {}
        for arm in arms:
            if arm.origin is not None:
                self._waiting.setdefault(arm.origin.arm_id, []).append(arm)

    def urgency(self, arm: ArmBoard, pace: Pace) -> tuple[float, float]:
        """Return the time of an arm's longest chain of trainings, and of all its work. The largest pair goes first."""
        seconds, (searches, confirmations, left) = pace(arm.arm_id), arm.ahead
        way = seconds * (searches + confirmations)
        if self._waiting:
            way = max(way, seconds * searches + self._behind(arm, pace))
        return way, seconds * left

    def _behind(self, arm: ArmBoard, pace: Pace) -> float:
        """Return the time of the longest chain among the arms that wait for an arm's search."""
        return max((self.urgency(other, pace)[0] for other in self._waiting.get(arm.arm_id, ())), default=0.0)
