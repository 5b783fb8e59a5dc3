"""How an arm's trials have ended, and its best validation value so far; kept up to date trial by trial."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import get_args

from topk_platform.protocol.ended import Ended
from topk_platform.specs import Arm, Phase, Status

__all__ = ["Counts"]


class Counts:
    """The ended trials of one arm, counted.

    Args:
        arm: The arm.
        searched: Its ended search trials.
        confirmed: Its ended confirmations.

    Attributes:
        statuses: How many trials ended with each status.
        best: The completed search trial with the highest metric, the earlier one on a tie; None before the first. For
            an arm that searches nothing, the same of its confirmations.
        values: The metric of each completed search trial, in order.

    Example:
        >>> from topk_platform.specs import Float, Loss, Model, Recipe, Regime
        >>> loss = Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1})
        >>> arm = Arm(Regime("r", "digits"), Model("mlp"), loss, 1, Recipe(epochs=4))
        >>> counts = Counts(arm, [Ended(0, {}, "completed", {4: 0.8}), Ended(1, {}, "diverged")])
        >>> counts.add("search", Ended(2, {}, "completed", {4: 0.9})), counts.best.number, counts.values
        (True, 2, [0.8, 0.9])
    """

    def __init__(self, arm: Arm, searched: Iterable[Ended] = (), confirmed: Iterable[Ended] = ()) -> None:
        self._shown: Phase = "search" if arm.is_searched else "confirm"
        # All keys are there from the start, because another thread may read while this one counts.
        self.statuses: Counter[str] = Counter(dict.fromkeys(get_args(Status), 0))
        self.best: Ended | None = None
        self.values: list[float] = []
        for ended in sorted(searched, key=lambda trial: trial.number):
            self.add("search", ended)
        for ended in confirmed:
            self.add("confirm", ended)

    def add(self, phase: Phase, ended: Ended) -> bool:
        """Count an ended trial; return whether it is the best so far."""
        self.statuses[ended.status] += 1
        if ended.status != "completed":
            return False
        if phase == "search":
            self.values.append(ended.objective)
        if phase != self._shown or math.isnan(ended.objective):
            return False
        if self.best is not None and ended.objective <= self.best.objective:
            return False
        self.best = ended
        return True
