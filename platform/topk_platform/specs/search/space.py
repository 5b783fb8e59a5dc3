"""The dimensions of a search space, as plain frozen data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topk_platform.errors import UserError
from topk_platform.specs.fields import check_fields

__all__ = ["Choice", "Dimension", "Float", "Int", "Scalar"]

Scalar = bool | int | float | str | None

When = Mapping[str, Sequence[Scalar]]
"""Values of other dimensions, by name. A dimension is active, and has a value in a trial, only with these values."""


@dataclass(frozen=True)
class Float:
    """A real number in ``[low, high]``, sampled uniformly, or uniformly in its logarithm.

    Args:
        low: Smallest value.
        high: Largest value, above ``low``.
        log: Whether to sample the logarithm; then ``low`` must be positive.
        when: Values of other dimensions, by name. The dimension is active only if each of these has a listed value.

    Raises:
        UserError: if the range is empty, reversed, not finite, or not positive where it must be.

    Example:
        >>> Float(0.01, 10, log=True)
        Float(low=0.01, high=10.0, log=True)
    """

    low: float
    high: float
    log: bool = False
    when: When = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        _keep_tuples(self)
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))
        _check_range(self.low, self.high, self.log)

    @property
    def ends(self) -> tuple[Scalar, ...]:
        """The smallest and the largest value."""
        return self.low, self.high

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
        when: Values of other dimensions, by name. The dimension is active only if each of these has a listed value.

    Raises:
        UserError: if the range is empty, reversed, or not positive where it must be.

    Example:
        >>> Int(1, 50, log=True).holds(10)
        True
    """

    low: int
    high: int
    log: bool = False
    when: When = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        _keep_tuples(self)
        _check_range(self.low, self.high, self.log)

    @property
    def ends(self) -> tuple[Scalar, ...]:
        """The smallest and the largest value."""
        return self.low, self.high

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
        when: Values of other dimensions, by name. The dimension is active only if each of these has a listed value.

    Raises:
        UserError: if no option is given or one is given twice.

    Example:
        >>> Choice((16, 32, 64)).holds(48)
        False
    """

    options: tuple[Scalar, ...]
    when: When = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        _keep_tuples(self)
        if not self.options or len(set(self.options)) < len(self.options):
            raise UserError(f"Choice needs at least one option and each only once, got {self.options!r}")

    @property
    def ends(self) -> tuple[Scalar, ...]:
        """All options, because none lies between others."""
        return self.options

    def holds(self, value: Scalar) -> bool:
        """Return whether ``value`` is one of the options."""
        return value in self.options

    def canonical(self, value: Scalar) -> Scalar:
        """Return the option that equals ``value``, such as 1 for 1.0: a trial's values are the options themselves."""
        return next((option for option in self.options if option == value), value)


Dimension = Float | Int | Choice


def _keep_tuples(dimension: Dimension) -> None:
    """Turn the lists of a condition, as JSON returns them, into tuples."""
    object.__setattr__(dimension, "when", {name: tuple(values) for name, values in dimension.when.items()})


def _check_range(low: float, high: float, log: bool) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(f"a search range needs finite low < high, got low={low!r}, high={high!r}")
    if log and low <= 0:
        raise UserError(f"a logarithmic search range needs low > 0, got low={low!r}")
