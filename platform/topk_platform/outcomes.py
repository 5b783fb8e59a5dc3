"""What is remembered of an ended search trial, and which one is best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from topk_platform.specs import Arm, Scalar, Status, TrialRecord

__all__ = ["Ended", "best", "chosen"]


@dataclass(frozen=True)
class Ended:
    """One ended search trial.

    Args:
        number: In its arm.
        values: What was chosen.
        status: How it ended.
        curve: The selection metric after each epoch that was validated.
        selected: The selection metric of the weights that were kept; by default the curve's last value.
    """

    number: int
    values: Mapping[str, Scalar]
    status: Status
    curve: Mapping[int, float] = field(default_factory=dict)
    selected: float | None = None

    @property
    def objective(self) -> float:
        """The selection metric; NaN unless the trial was completed."""
        if self.status != "completed":
            return math.nan
        return self.curve[max(self.curve)] if self.selected is None else self.selected

    @classmethod
    def from_record(cls, record: TrialRecord) -> Ended:
        """Return what the search needs of a record."""
        trial, metric = record.trial, record.trial.arm.metric
        curve = {epoch.epoch: epoch.validation[metric] for epoch in record.epochs}
        return cls(trial.number, trial.values, record.status, curve, record.validation.get(metric))


def best(ended: Iterable[Ended]) -> Ended | None:
    """Return the completed trial with the highest objective, the earlier one of equals, or None.

    Example:
        >>> runs = [Ended(0, {}, "completed", {1: 0.8}), Ended(1, {}, "completed", {1: 0.9}), Ended(2, {}, "pruned")]
        >>> best(runs).number
        1
    """
    completed = [trial for trial in ended if trial.status == "completed"]
    return max(completed, key=lambda trial: (trial.objective, -trial.number), default=None)


def chosen(arm: Arm, ended: Iterable[Ended]) -> Ended | None:
    """Return the configuration to confirm: the best searched one; the only one of an arm that searches nothing.

    Args:
        arm: The arm.
        ended: Its search trials that count.
    """
    return best(ended) if arm.searches else Ended(0, {}, "completed", selected=math.nan)
