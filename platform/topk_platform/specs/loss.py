"""A loss with its search space, parameters that change while a trial trains, and all parameters of one trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

from topk_platform.errors import UserError
from topk_platform.references import reference_of
from topk_platform.specs.checks import check, check_name
from topk_platform.specs.fields import Rule, check_fields, one_of
from topk_platform.specs.recipe import SEARCHABLE, Recipe
from topk_platform.specs.space import Choice, Dimension, Scalar, active_names, check_conditions

__all__ = ["SHAPES", "Loss", "Parameter", "Schedule", "Setting", "numbers"]

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


_REMEMBERING = ("early_learning",)


@dataclass(frozen=True)
class Loss:
    """A loss with its search space.

    Args:
        name: A name in the platform's table, or ``package.module:attribute`` of your own, or the function or class
            itself, if every process can import it; the name is then its reference.
        space: The dimensions searched: the loss's own parameters, the recipe's (``learning_rate``,
            ``weight_decay``, ``momentum``, ``batch_size``), and the dimensions that schedules name.
        first: The first trial's values, usually the paper's: one for every dimension of ``space`` that is active with
            them.
        fixed: Parameters of the loss or the recipe that are not searched. Those of the loss may follow a
            :class:`Schedule`.
        head: ``"linear"``, or ``"cosine"`` for the normalised head.
        label: Its name in tables; by default the name, or the attribute of a reference.
        then: The values of the trials after the first, such as those of other papers, like ``first``.

    Raises:
        UserError: if ``first`` or a point of ``then`` does not give every active dimension one value inside it, a
            parameter is both fixed and searched, a condition or a schedule names an unknown dimension, or conditions
            form a circle.

    Example:
        >>> from topk_platform.specs import Float
        >>> samples, epsilon = Choice((None, 1, 10)), Float(0.01, 10, log=True)
        >>> Loss("noised_topk_hinge", {"samples": samples, "epsilon": epsilon}, {"samples": 10, "epsilon": 0.2}).first
        {'samples': 10, 'epsilon': 0.2}
        >>> annealed = Loss("smooth_topk_svm", {"end": epsilon}, {"end": 0.1}, {"tau": Schedule("cosine", 1.0, "end")})
        >>> annealed.parameters({"end": 0.3})
        {'tau': Schedule(shape='cosine', start=1.0, end=0.3), 'end': 0.3}
    """

    name: str
    space: Mapping[str, Dimension] = field(default_factory=dict)
    first: Mapping[str, Scalar] = field(default_factory=dict)
    fixed: Mapping[str, Parameter] = field(default_factory=dict)
    head: Annotated[str, one_of("linear", "cosine")] = "linear"
    label: str = ""
    then: Sequence[Mapping[str, Scalar]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", reference_of("loss", self.name))
        check_fields(self)
        object.__setattr__(self, "label", self.label or self.name.rpartition(":")[2])
        check_name("loss label", self.label)
        both = sorted(set(self.space) & set(self.fixed))
        check(not both, f"loss {self.label}: {both} cannot be both in space and fixed")
        check_conditions(self.label, self.space)
        object.__setattr__(self, "first", self._checked("first", self.first))
        then = [self._checked(f"then[{index}]", point) for index, point in enumerate(self.then)]
        object.__setattr__(self, "then", tuple(then))
        for name, schedule in self.schedules.items():
            self._check_schedule(name, schedule)

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The parameters that change while a trial trains."""
        return {name: value for name, value in self.fixed.items() if isinstance(value, Schedule)}

    @property
    def remembers(self) -> bool:
        """Whether it has a state for each training sample, and so needs each sample's position in the split."""
        return self.name in _REMEMBERING

    def parameters(self, values: Mapping[str, Scalar]) -> dict[str, Parameter]:
        """Return the fixed and the chosen parameters together, schedules with their dimensions' values."""
        settled = {name: schedule.settled(values) for name, schedule in self.schedules.items()}
        return {**self.fixed, **settled, **values}

    def _checked(self, field_name: str, point: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the values of a trial that are given, as the dimensions write them."""
        needed = active_names(self.space, point)
        check(
            set(point) == set(needed),
            f"loss {self.label}: {field_name} must give one value for each of {sorted(needed)}, got {sorted(point)}",
        )
        for name, value in point.items():
            check(
                self.space[name].holds(value),
                f"loss {self.label}: {field_name}[{name!r}] must lie in {self.space[name]}, got {value!r}",
            )
        return {name: self.space[name].canonical(value) for name, value in point.items()}

    def _check_schedule(self, name: str, schedule: Schedule) -> None:
        subject = f"loss {self.label}: the schedule of {name!r}"
        check(
            name not in SEARCHABLE,
            f"{subject} is for the loss's own parameters; the rate has Recipe.schedule",
        )
        for named in schedule.names:
            check(
                named in self.space and named not in SEARCHABLE,
                f"{subject} names {named!r}, which is neither a number, nor one of {list(SHAPES)}, nor a dimension of "
                f"its own in space, {sorted(set(self.space) - {*SEARCHABLE})}",
            )
        shape = self.space.get(schedule.shape)
        fits = shape is None or (isinstance(shape, Choice) and set(shape.options) <= set(SHAPES))
        check(fits, f"{subject}: {schedule.shape!r} must be a Choice among {list(SHAPES)}, got {shape}")
        schedule.settled(self.first)


class Setting(NamedTuple):
    """The parameters of one trial, divided into the recipe and the loss's own.

    Args:
        recipe: The arm's recipe, with the values that are fixed or searched.
        own: The loss's own parameters, schedules among them, by name.

    Example:
        >>> loss = Loss("smooth_topk_svm", fixed={"tau": 0.1, "learning_rate": 1.0})
        >>> setting = Setting.of(Recipe(epochs=1), loss, {})
        >>> setting.recipe.learning_rate, setting.own
        (1.0, {'tau': 0.1})
    """

    recipe: Recipe
    own: dict[str, Parameter]

    @classmethod
    def of(cls, recipe: Recipe, loss: Loss, values: Mapping[str, Scalar]) -> Setting:
        """Return the setting of a trial.

        Args:
            recipe: The arm's recipe.
            loss: The arm's loss, with its fixed parameters.
            values: The chosen values, by name.

        Raises:
            UserError: if a value is out of range.
        """
        parameters = loss.parameters(values)
        theirs: dict[str, Any] = {name: parameters[name] for name in SEARCHABLE if name in parameters}
        named = {name for schedule in loss.schedules.values() for name in schedule.names}
        own = {n: value for n, value in parameters.items() if n not in theirs and n not in named}
        return cls(replace(recipe, **theirs), own)


def numbers(own: Mapping[str, Parameter], epoch: int, epochs: int) -> dict[str, Scalar]:
    """Return a loss's own parameters as they are in an epoch.

    Args:
        own: The parameters by name. Schedules in it must be settled, see :meth:`Schedule.settled`.
        epoch: From 0.
        epochs: The number of epochs of the whole training.

    Example:
        >>> numbers({"tau": Schedule("linear", 1.0, 0.0), "margin": 1.0}, epoch=1, epochs=3)
        {'tau': 0.5, 'margin': 1.0}
    """
    return {
        name: value.at(epoch, epochs) if isinstance(value, Schedule) else value for name, value in own.items()
    }
