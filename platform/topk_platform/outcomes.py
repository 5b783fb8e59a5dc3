"""What is remembered of an ended search trial, and which one is best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from topk_platform.specs import Scalar, Status, TrialRecord

__all__ = ["Ended", "best"]


@dataclass(frozen=True)
class Ended:
    """One ended search trial.

    Args:
        number: In its arm.
        values: What was chosen.
        status: How it ended.
        curve: The selection metric after each epoch that it reached.
    """

    number: int
    values: Mapping[str, Scalar]
    status: Status
    curve: Mapping[int, float] = field(default_factory=dict)

    @property
    def objective(self) -> float:
        """The selection metric after the last epoch; NaN unless the trial was completed."""
        return self.curve[max(self.curve)] if self.status == "completed" else math.nan

    @classmethod
    def from_record(cls, record: TrialRecord) -> Ended:
        """Return what the search needs of a record."""
        trial, metric = record.trial, record.trial.arm.metric
        curve = {epoch.epoch: epoch.validation[metric] for epoch in record.epochs}
        return cls(trial.number, trial.values, record.status, curve)


def best(ended: Iterable[Ended]) -> Ended | None:
    """Return the completed trial with the highest objective, the earlier one of equals, or None.

    Example:
        >>> runs = [Ended(0, {}, "completed", {1: 0.8}), Ended(1, {}, "completed", {1: 0.9}), Ended(2, {}, "pruned")]
        >>> best(runs).number
        1
    """
    completed = [trial for trial in ended if trial.status == "completed"]
    return max(completed, key=lambda trial: (trial.objective, -trial.number), default=None)
