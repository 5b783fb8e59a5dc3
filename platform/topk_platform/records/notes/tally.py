"""The number of runs that ended with each status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from topk_platform.specs.fields import Whole

__all__ = ["Tally"]


@dataclass(frozen=True)
class Tally:
    """How many runs ended with each status.

    Example:
        >>> Tally.of(["completed", "diverged", "diverged"])
        Tally(completed=1, pruned=0, diverged=2, failed=0)
    """

    completed: Whole = 0
    pruned: Whole = 0
    diverged: Whole = 0
    failed: Whole = 0

    @classmethod
    def of(cls, statuses: Iterable[str]) -> Tally:
        """Return the tally of statuses."""
        return cls(**Counter(statuses))

    @property
    def ended(self) -> int:
        """How many runs ended in all."""
        return self.completed + self.pruned + self.diverged + self.failed

    @property
    def lost(self) -> int:
        """How many ended without a result: diverged or failed."""
        return self.diverged + self.failed
