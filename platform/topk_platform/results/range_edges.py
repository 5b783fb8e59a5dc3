"""Chosen values at an end of their range, where a better value may lie beyond, and the range to try next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from topk_platform.loss_catalogue import LOSS_CATALOGUE, LossEntry
from topk_platform.specs import Choice, Dimension, Float, Int, Loss, Scalar
from topk_platform.specs.checks import rounded

__all__ = ["Edge", "edges"]

_PART = 0.05  # of the range, at either end
_LEAST = 3  # numbers that a ``Choice`` needs to have ends
_LIMITS: Mapping[str, tuple[float, float]] = {"momentum": (0.0, 1.0), "samples": (1.0, math.inf)}
"""Limits of parameters with every loss; the catalogue has the limits of each loss's own parameters."""

_NO_ENTRY = LossEntry("", "", "")
_NO_LIMITS = (-math.inf, math.inf)


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
    if len(numbers) < _LEAST or value not in (numbers[0], numbers[-1]):
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
