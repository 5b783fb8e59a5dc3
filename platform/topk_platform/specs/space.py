"""The dimensions of search spaces, and which of them are active with the values of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topk_platform.errors import UserError, unknown_name
from topk_platform.specs.checks import check
from topk_platform.specs.fields import Checked

__all__ = [
    "Choice",
    "Dimension",
    "Float",
    "Int",
    "Scalar",
    "active",
    "active_names",
    "check_conditions",
    "in_order",
    "is_active",
    "reaching",
]

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


def in_order(space: Mapping[str, Dimension]) -> tuple[str, ...]:
    """Return a space's names in order, but each one after the names in its ``when``.

    Raises:
        UserError: if conditions form a circle.

    Example:
        >>> from topk_platform.specs import Choice, Float
        >>> in_order({"epsilon": Float(0, 1, when={"samples": (1,)}), "samples": Choice((None, 1))})
        ('samples', 'epsilon')
    """
    placed: dict[str, None] = {}
    while len(placed) < len(space):
        ready = (name for name in space if name not in placed and space[name].when.keys() <= placed.keys())
        following = next(ready, None)
        if following is None:
            circle = [name for name in space if name not in placed]
            raise UserError(f"the conditions of {circle} form a circle: each `when` needs another")
        placed[following] = None
    return tuple(placed)


def is_active(dimension: Dimension, values: Mapping[str, Scalar]) -> bool:
    """Return whether a dimension is active, given the values of the others."""
    return all(name in values and values[name] in allowed for name, allowed in dimension.when.items())


def active_names(space: Mapping[str, Dimension], values: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return the names of the dimensions that are active with these values, in the space's order."""
    known: dict[str, Scalar] = {}
    names = []
    for name in in_order(space):
        if is_active(space[name], known):
            names.append(name)
            known |= {name: values[name]} if name in values else {}
    return tuple(names)


def active(space: Mapping[str, Dimension], values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return only the values of active dimensions, in the space's order.

    Example:
        >>> from topk_platform.specs import Choice, Float
        >>> space = {"samples": Choice((None, 1)), "epsilon": Float(0, 1, when={"samples": (1,)})}
        >>> active(space, {"samples": None, "epsilon": 0.5})
        {'samples': None}
    """
    names = active_names(space, values)
    return {name: values[name] for name in space if name in names and name in values}


def reaching(
    space: Mapping[str, Dimension], values: Mapping[str, Scalar], name: str, value: Scalar
) -> dict[str, Scalar]:
    """Return values with which one dimension is active and has a certain value; the others are kept where possible.

    Args:
        space: The space.
        values: One value for each dimension that is active with them.
        name: The dimension.
        value: The value that it must have.
    """
    required: dict[str, Scalar] = {name: value}
    for other in reversed(in_order(space)):
        for parent, options in space[other].when.items() if other in required else ():
            there = {**values, **required}
            required[parent] = there[parent] if parent in there and there[parent] in options else options[0]
    ends = {other: dimension.ends[0] for other, dimension in space.items()}
    return active(space, {**ends, **values, **required})


def check_conditions(label: str, space: Mapping[str, Dimension]) -> None:
    """Raise ``UserError`` if a ``when`` names an unknown dimension or value, or if conditions form a circle."""
    for name, dimension in space.items():
        for other, allowed in dimension.when.items():
            condition = f"loss {label}: when of {name!r}"
            if other not in space:
                raise unknown_name(f"dimension in {condition}", other, space)
            check(bool(allowed), f"{condition} must list at least one value of {other!r}, got none")
            check(
                not isinstance(space[other], Float),
                f"{condition} must list values of a Choice or an Int, got {other!r}, a Float, which hardly ever "
                "has one of a few values",
            )
            never = [value for value in allowed if not space[other].holds(value)]
            check(not never, f"{condition} lists {never} of {other!r}, which {space[other]} lacks")
    in_order(space)
