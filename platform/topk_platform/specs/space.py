"""The dimensions of a search space: what an arm's searcher may choose, as plain frozen data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topk_platform.errors import UserError
from topk_platform.specs.fields import check_fields

__all__ = ["Choice", "Dimension", "Float", "Int", "Scalar"]

Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class Float:
    """A real number in ``[low, high]``, sampled uniformly, or uniformly in its logarithm.

    Args:
        low: Smallest value.
        high: Largest value, above ``low``.
        log: Whether to sample the logarithm; then ``low`` must be positive.

    Raises:
        UserError: if the range is empty, reversed, not finite, or not positive where it must be.

    Example:
        >>> Float(0.01, 10, log=True)
        Float(low=0.01, high=10.0, log=True)
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))
        _check_range(self.low, self.high, self.log)

    def holds(self, value: Scalar) -> bool:
        """Return whether ``value`` lies in the range."""
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high
        )

    def canonical(self, value: Scalar) -> Scalar:
        """Return ``value`` as this dimension writes it: a float."""
        return float(value) if isinstance(value, (int, float)) else value


@dataclass(frozen=True)
class Int:
    """A whole number in ``[low, high]``, sampled uniformly, or uniformly in its logarithm.

    Args:
        low: Smallest value.
        high: Largest value, above ``low``.
        log: Whether to sample the logarithm; then ``low`` must be positive.

    Raises:
        UserError: if the range is empty, reversed, or not positive where it must be.

    Example:
        >>> Int(1, 50, log=True).holds(10)
        True
    """

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        _check_range(self.low, self.high, self.log)

    def holds(self, value: Scalar) -> bool:
        """Return whether ``value`` is a whole number in the range."""
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high

    def canonical(self, value: Scalar) -> Scalar:
        """Return ``value`` unchanged."""
        return value


@dataclass(frozen=True)
class Choice:
    """One of the values listed, without order.

    Args:
        options: The values, at least one, all different.

    Raises:
        UserError: if no option is given or one is given twice.

    Example:
        >>> Choice((16, 32, 64)).holds(48)
        False
    """

    options: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.options or len(set(self.options)) < len(self.options):
            raise UserError(f"Choice needs at least one option and each only once, got {self.options!r}")

    def holds(self, value: Scalar) -> bool:
        """Return whether ``value`` is one of the options."""
        return value in self.options

    def canonical(self, value: Scalar) -> Scalar:
        """Return ``value`` unchanged."""
        return value


Dimension = Float | Int | Choice


def _check_range(low: float, high: float, log: bool) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(f"a search range needs finite low < high, got low={low!r}, high={high!r}")
    if log and low <= 0:
        raise UserError(f"a logarithmic search range needs low > 0, got low={low!r}")
