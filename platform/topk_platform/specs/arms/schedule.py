"""A loss's parameter that changes while a trial trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from topk_platform.errors import UserError
from topk_platform.specs.checks import check
from topk_platform.specs.fields import Rule, check_fields
from topk_platform.specs.search.space import Scalar

__all__ = ["SHAPES", "Parameter", "Schedule"]

SHAPES = ("constant", "linear", "cosine")

_Name = Annotated[str, Rule("a name that is not blank", lambda value: bool(value.strip()))]


@dataclass(frozen=True)
class Schedule:
    """A number that goes from one value to another over the epochs of a training.

    With t from 0 in the first epoch to 1 in the last: ``constant`` is a; ``linear`` is ``a + (b - a) t``; ``cosine`` is
    ``b + (a - b) (1 + cos(π t)) / 2``. Between two whole numbers the value is rounded to a whole one.

    Each part may be the name of a dimension of the loss's space instead, and is then searched like any other.

    Args:
        shape: ``"constant"``, ``"linear"``, ``"cosine"``, or the name of a dimension that chooses among them.
        start: a, or the name of a dimension.
        end: b, or the name of a dimension; ``constant`` needs none.

    Raises:
        UserError: if ``linear`` or ``cosine`` have no end.

    Example:
        >>> tau = Schedule("linear", 1.0, 0.0)
        >>> [tau.at(epoch, epochs=5) for epoch in range(5)]
        [1.0, 0.75, 0.5, 0.25, 0.0]
        >>> Schedule("cosine", "tau", "tau_end").settled({"tau": 2.0, "tau_end": 0.5})
        Schedule(shape='cosine', start=2.0, end=0.5)
    """

    shape: _Name
    start: float | _Name
    end: float | _Name | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check(
            self.end is not None or self.shape not in SHAPES[1:],
            f"Schedule.end must be a number or a name where shape is {self.shape!r}, got None",
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions that the schedule names, that of its shape first."""
        named = [part for part in (self.start, self.end) if isinstance(part, str)]
        return tuple(([] if self.shape in SHAPES else [self.shape]) + named)

    def settled(self, values: Mapping[str, Scalar]) -> Schedule:
        """Return the schedule with values in place of names; a constant schedule has no end then.

        Args:
            values: The values of the active dimensions.

        Raises:
            UserError: if a value that is needed is missing or has the wrong type.
        """
        shape = self.shape if self.shape in SHAPES else _value(self.shape, values)
        if shape not in SHAPES:
            raise UserError(
                f"a schedule's shape must be one of {list(SHAPES)}, got {shape!r} of {self.shape!r}"
            )
        start, end = (
            _number(part, values) for part in (self.start, None if shape == SHAPES[0] else self.end)
        )
        assert start is not None  # noqa: S101 - for the type checker: a start is never None
        return Schedule(str(shape), start, end)

    def at(self, epoch: int, epochs: int) -> float:
        """Return the value in an epoch.

        Args:
            epoch: From 0.
            epochs: The number of epochs of the whole training.
        """
        settled = self.settled({})
        start, end = settled.start, settled.end
        assert not isinstance(start, str) and not isinstance(end, str)  # noqa: PT018, S101 - as above: it is settled
        if end is None:
            return start
        progress = epoch / (epochs - 1) if epochs > 1 else 0.0
        share = progress if self.shape == "linear" else (1 - math.cos(math.pi * progress)) / 2
        value = start + (end - start) * share if progress < 1 else end
        return round(value) if isinstance(start, int) and isinstance(end, int) else value

    def __str__(self) -> str:
        return f"{self.shape} {self.start}" + ("" if self.end is None else f" to {self.end}")


Parameter = Scalar | Schedule


def _number(part: float | str | None, values: Mapping[str, Scalar]) -> float | None:
    number = _value(part, values) if isinstance(part, str) else part
    if isinstance(number, (bool, str)):
        raise UserError(f"a schedule must start and end with numbers, got {number!r} of {part!r}")
    return number


def _value(name: str, values: Mapping[str, Scalar]) -> Scalar:
    if name not in values:
        raise UserError(f"a schedule needs a value of {name!r}, but only {sorted(values)} have one")
    return values[name]
