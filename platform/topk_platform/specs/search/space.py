"""The dimensions of a search space, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topk_platform.errors import UserError
from topk_platform.specs.fields import Checked

__all__ = ["Choice", "Dimension", "Float", "Int", "Scalar"]

Scalar = bool | int | float | str | None

When = Mapping[str, Sequence[Scalar]]
"""Values of other dimensions, by name. A dimension is active, and has a value in a trial, only with these values."""


@dataclass(frozen=True)
class _Range(Checked):
    low: float
    high: float
    log: bool = False
    when: When = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise UserError(
                f"a search range needs finite low < high, got low={self.low!r}, high={self.high!r}"
            )
        if self.log and self.low <= 0:
            raise UserError(f"a logarithmic search range needs low > 0, got low={self.low!r}")

    @property
    def ends(self) -> tuple[Scalar, ...]:
        """The smallest and the largest value."""
        return self.low, self.high


@dataclass(frozen=True)
class Float(_Range):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))

    def holds(self, value: Scalar) -> bool:
        """Return whether ``value`` lies in the range."""
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high
        )

    def canonical(self, value: Scalar) -> Scalar:
        """Return ``value`` as this dimension writes it: a float."""
        return float(value) if isinstance(value, (int, float)) else value


@dataclass(frozen=True)
class Int(_Range):
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

    def holds(self, value: Scalar) -> bool:
        """Return whether ``value`` is a whole number in the range."""
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high

    def canonical(self, value: Scalar) -> Scalar:
        """Return ``value`` unchanged."""
        return value


@dataclass(frozen=True)
class Choice(Checked):
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
        super().__post_init__()
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
