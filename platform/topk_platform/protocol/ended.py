"""An ended trial as the protocol sees it, and the choice of the best trial."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from topk_platform.protocol.fronts import pareto, spread
from topk_platform.specs import Arm, Scalar, Status, TrialRecord

__all__ = ["Ended", "best", "chosen"]


class Ended(NamedTuple):
    """One ended trial. It is a tuple to save memory: a driver holds hundreds of thousands of them.

    Args:
        number: The trial's number in its arm.
        values: The values that the sampler chose.
        status: How it ended.
        curve: The selection metric after each epoch that was validated.
        selected: The selection metric of the weights kept; by default the curve's last value.
        others: The other selection metrics, for an arm searched by several.
    """

    number: int
    values: Mapping[str, Scalar]
    status: Status
    curve: Mapping[int, float] = MappingProxyType({})
    selected: float | None = None
    others: tuple[float, ...] = ()

    @property
    def objective(self) -> float:
        """The selection metric; NaN unless the trial was completed and the metric is known."""
        if self.status != "completed":
            return math.nan
        if self.selected is None:
            return self.curve[max(self.curve)] if self.curve else math.nan
        return self.selected

    @property
    def objectives(self) -> tuple[float, ...]:
        """All selection metrics of a completed trial."""
        return (self.objective, *self.others)

    @property
    def score(self) -> float:
        """The selection metric; 0 unless the trial was completed."""
        return self.objective if self.status == "completed" else 0.0

    @classmethod
    def from_record(cls, record: TrialRecord) -> Ended:
        """Return a record's trial as the protocol sees it."""
        trial, metric = record.trial, record.trial.arm.metric
        curve = {epoch.epoch: epoch.validation[metric] for epoch in record.epochs}
        others = tuple(record.validation.get(other, math.nan) for other in trial.arm.objectives[1:])
        return cls(trial.number, trial.values, record.status, curve, record.validation.get(metric), others)


def best(ended: Iterable[Ended]) -> Ended | None:
    """Return the completed trial with the highest objective, the earlier one on a tie; None if there is none.

    Example:
        >>> runs = [Ended(0, {}, "completed", {1: 0.8}), Ended(1, {}, "completed", {1: 0.9}), Ended(2, {}, "pruned")]
        >>> best(runs).number
        1
    """
    completed = [trial for trial in ended if trial.status == "completed"]
    return max(completed, key=lambda trial: (trial.objective, -trial.number), default=None)


def chosen(arm: Arm, ended: Iterable[Ended], front: int = 1) -> tuple[Ended, ...]:
    """Return the search trials to be confirmed: the best one, or the only one of an arm that searches nothing.

    For an arm searched by several metrics, return its Pareto front, the best by the first metric first.

    Args:
        arm: The arm.
        ended: The search's trials that count.
        front: The maximum number of points of the front to return.
    """
    if not arm.is_searched:
        return (Ended(0, {}, "completed", selected=math.nan),)
    if len(arm.objectives) == 1:
        winner = best(ended)
        return () if winner is None else (winner,)
    completed = sorted((e for e in ended if e.status == "completed"), key=lambda trial: trial.number)
    points = [trial.objectives for trial in completed]
    unbeaten = [completed[i] for i in pareto(points)]
    return tuple(unbeaten[i] for i in spread([trial.objectives for trial in unbeaten], front))
