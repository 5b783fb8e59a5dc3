"""How a study's arms were tuned: the gain by trials, which parameters matter, and values at an end of their range.

Everything is based on validation results; the test set is not used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from topk_platform.loss_catalogue import LOSS_CATALOGUE, LossEntry
from topk_platform.protocol import Ended
from topk_platform.records.history import ArmResults
from topk_platform.specs import Choice, Dimension, Float, Int, Loss, Scalar
from topk_platform.specs.checks import rounded

__all__ = ["ArmTuning", "Edge", "edges", "tuning_of"]

_LEAST_TRIALS = 10  # completed trials for importances
_PART = 0.05  # of the range, at either end
_LEAST_OPTIONS = 3  # numbers that a ``Choice`` needs to have ends
_LIMITS: Mapping[str, tuple[float, float]] = {"momentum": (0.0, 1.0), "samples": (1.0, math.inf)}
"""Limits of parameters with every loss; the catalogue has the limits of each loss's own parameters."""

_NO_ENTRY = LossEntry("")
_NO_LIMITS = (-math.inf, math.inf)


@dataclass(frozen=True)
class ArmTuning:
    """How one arm was tuned.

    Args:
        arm: Its name.
        metric: The validation metric that selects the configuration.
        trace: For each n from 1, the best result among the first n search trials of all its searches together.
        importances: Each parameter's share, among all, in explaining which trials are the best tenth; empty if fewer
            than ten trials were completed, or if all results are equal.
    """

    arm: str
    metric: str
    trace: tuple[float, ...]
    importances: Mapping[str, float]

    def enough(self, within: float) -> int | None:
        """Return the number of trials until the search was within a tolerance of its best; None if none completed.

        Args:
            within: The tolerance, as a fraction of 1.

        Example:
            >>> ArmTuning("r/mlp/focal", "top1", (0.5, 0.68, 0.7), {}).enough(0.03)
            2
        """
        if not self.trace or not self.trace[-1]:
            return None
        return next(n for n, best in enumerate(self.trace, 1) if best >= self.trace[-1] - within - 1e-12)


def tuning_of(results: Iterable[ArmResults]) -> list[ArmTuning]:
    """Return how the arms with search trials were tuned.

    A trial stopped early counts with its last validation; a trial that diverged or failed counts as 0.

    Args:
        results: The arms' results, with the epochs of their trials.

    Source:
        PED-ANOVA: Watanabe, Bansal and Hutter, IJCAI 2023.
    """
    return [_tuned(of_arm) for of_arm in results if of_arm.history.search]


def _tuned(results: ArmResults) -> ArmTuning:
    arm, known = results.arm, results.history.ended()
    ended = [known[n] for n in sorted(known, key=arm.repeats.order) if results.state.counts(n)]
    best = itertools.accumulate(map(_result, ended), max)
    completed = [trial for trial in ended if trial.status == "completed"]
    return ArmTuning(arm.name, arm.metric, tuple(best), _importances(arm.loss.space, completed))


def _result(trial: Ended) -> float:
    """Return a trial's validation result: the last one for a trial stopped early, 0 if there is none."""
    if trial.status == "completed":
        return trial.objective
    return trial.curve[max(trial.curve)] if trial.status == "pruned" and trial.curve else 0.0


def _importances(space: Mapping[str, Dimension], trials: Sequence[Ended]) -> dict[str, float]:
    if len(trials) < _LEAST_TRIALS or len({trial.objective for trial in trials}) < 2:
        return {}
    import optuna  # noqa: PLC0415 - a second, which a table needs not

    from topk_platform.protocol.suggest import to_optuna  # noqa: PLC0415 - Optuna, as above

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions, study = to_optuna(space), optuna.create_study(direction="maximize")
    for trial in trials:
        values = {name: trial.values[name] for name in space if trial.values.get(name) is not None}
        own = {name: distributions[name] for name in values}
        study.add_trial(optuna.create_trial(params=values, distributions=own, value=trial.objective))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


@dataclass(frozen=True)
class Edge:
    """A chosen value at an end of its range.

    Args:
        parameter: Its name.
        value: The chosen value.
        searched: The range that was searched, in words.
        proposed: The range to try next, in words.
    """

    parameter: str
    value: float
    searched: str
    proposed: str

    @property
    def in_words(self) -> str:
        """The value with both ranges, in words."""
        return f"{self.parameter} = {rounded(self.value)} (searched {self.searched}; try {self.proposed})"


def edges(loss: Loss, values: Mapping[str, Scalar]) -> tuple[Edge, ...]:
    """Return the chosen values within 5 % of an end of their range, on the scale that it is searched on.

    The range to try next reaches a third of the old one further at that end. A bound that a parameter cannot pass does
    not count, such as one noise sample, or the end of a linear range at 0 or 1. A ``Choice`` of three numbers or more
    has ends; other options have none. A whole number is proposed where all numbers are whole.

    Args:
        loss: The loss, with its search space.
        values: The chosen configuration.

    Example:
        >>> loss = Loss("cross_entropy", {"learning_rate": Float(0.003, 3, log=True)}, {"learning_rate": 0.1})
        >>> [edge.in_words for edge in edges(loss, {"learning_rate": 2.9})]
        ['learning_rate = 2.9 (searched 0.003 to 3; try 0.003 to 30)']
    """
    result = (
        _edge(loss.name, name, dimension, value)
        for name, dimension in loss.space.items()
        if isinstance(value := values.get(name), int | float) and not isinstance(value, bool)
    )
    return tuple(edge for edge in result if edge is not None)


def _edge(loss: str, name: str, dimension: Dimension, value: float) -> Edge | None:
    if isinstance(dimension, Choice):
        return _of_options(name, dimension, value, _limits(loss, name) or _NO_LIMITS)
    at = _position(dimension, value)
    if _PART < at < 1 - _PART:
        return None
    least, most = _limits(loss, name) or _ends_at_0_and_1(dimension)
    low, high = dimension.low, dimension.high
    if at > 0.5:
        next_low, next_high = low, min(_further(dimension, 4 / 3), _halfway(dimension, high, most))
    else:
        next_low, next_high = max(_further(dimension, -1 / 3), _halfway(dimension, low, least)), high
    if (next_low, next_high) == (low, high):
        return None
    return Edge(name, value, _words(low, high), _words(next_low, next_high))


def _limits(loss: str, name: str) -> tuple[float, float] | None:
    """Return the limits of a loss's parameter; None if it has none."""
    return {**_LIMITS, **LOSS_CATALOGUE.get(loss, _NO_ENTRY).limits}.get(name)


def _ends_at_0_and_1(dimension: Float | Int) -> tuple[float, float]:
    """Return the ends of a linear range at 0 or 1, which are taken as limits."""
    least = 0.0 if not dimension.log and dimension.low == 0 else -math.inf
    return least, 1.0 if not dimension.log and dimension.high == 1 else math.inf


def _position(dimension: Float | Int, value: float) -> float:
    """Return where a value lies in a range, from 0 to 1, on the scale that it is searched on."""
    low, high = float(dimension.low), float(dimension.high)
    if dimension.log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def _further(dimension: Float | Int, position: float) -> float:
    """Return the value at a position beyond the ends of a range, as a round number."""
    low, high = float(dimension.low), float(dimension.high)
    beyond = low * (high / low) ** position if dimension.log else low + position * (high - low)
    result = float(f"{beyond:.1g}") if dimension.log else float(f"{beyond:.3g}")
    if not isinstance(dimension, Int):
        return result
    if position > 1:
        return float(max(round(result), dimension.high + 1))
    below = min(round(result), dimension.low - 1)
    return float(max(below, 1) if dimension.log else below)  # the logarithm of 0 is not finite


def _halfway(dimension: Float | Int, end: float, limit: float) -> float:
    """Return the value halfway between an end and a limit; the limit itself if it is infinite.

    If only whole numbers are searched, it is rounded towards the limit.
    """
    if math.isinf(limit):
        return limit
    middle = (end + limit) / 2
    if not isinstance(dimension, Int):
        return middle
    return float(math.ceil(middle) if limit > end else math.floor(middle))


def _of_options(name: str, dimension: Choice, value: float, limits: tuple[float, float]) -> Edge | None:
    numbers = sorted({v for v in dimension.options if isinstance(v, int | float) and not isinstance(v, bool)})
    if len(numbers) < _LEAST_OPTIONS or value not in (numbers[0], numbers[-1]):
        return None
    ends = numbers[:2] if value == numbers[0] else numbers[:-3:-1]
    beyond = ends[0] ** 2 / ends[1] if min(ends) > 0 else 2 * ends[0] - ends[1]
    if all(isinstance(number, int) for number in numbers):
        beyond = round(beyond)
    if not limits[0] <= beyond <= limits[1] or (min(ends) > 0 and beyond <= 0):
        return None
    return Edge(name, value, _words(numbers[0], numbers[-1]), f"{rounded(beyond)} as well")


def _words(low: float, high: float) -> str:
    return f"{rounded(low)} to {rounded(high)}"
