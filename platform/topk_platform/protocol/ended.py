"""An ended trial as the protocol sees it, and the best of several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from topk_platform.specs import Scalar, Status, TrialRecord

__all__ = ["Ended", "best"]


class Ended(NamedTuple):
    """One ended trial. It is a tuple to save memory: a driver holds hundreds of thousands of them.

    Args:
        number: The trial's number in its arm.
        values: The values that the sampler chose.
        status: How it ended.
        curve: The selection metric after each epoch that was validated.
        selected: The selection metric of the weights kept; by default the curve's last value.
    """

    number: int
    values: Mapping[str, Scalar]
    status: Status
    curve: Mapping[int, float] = MappingProxyType({})
    selected: float | None = None

    @property
    def objective(self) -> float:
        """The selection metric; NaN unless the trial was completed and the metric is known."""
        if self.status != "completed":
            return math.nan
        if self.selected is None:
            return self.curve[max(self.curve)] if self.curve else math.nan
        return self.selected

    @property
    def score(self) -> float:
        """The selection metric; 0 unless the trial was completed."""
        return self.objective if self.status == "completed" else 0.0

    @classmethod
    def from_record(cls, record: TrialRecord) -> Ended:
        """Return a record's trial as the protocol sees it."""
        trial, metric = record.trial, record.trial.arm.metric
        curve = {epoch.epoch: epoch.validation[metric] for epoch in record.epochs}
        return cls(trial.number, trial.values, record.status, curve, record.validation.get(metric))


def best(ended: Iterable[Ended]) -> Ended | None:
    """Return the completed trial with the highest objective, the earlier one on a tie; None if there is none.

    Example:
        >>> runs = [Ended(0, {}, "completed", {1: 0.8}), Ended(1, {}, "completed", {1: 0.9}), Ended(2, {}, "pruned")]
        >>> best(runs).number
        1
    """
    completed = [trial for trial in ended if trial.status == "completed"]
    return max(completed, key=lambda trial: (trial.objective, -trial.number), default=None)
