"""A loss with its search space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from topk_platform.references import reference_of
from topk_platform.specs.arms.recipe import SEARCHABLE
from topk_platform.specs.arms.schedule import SHAPES, Parameter, Schedule
from topk_platform.specs.checks import check, check_name
from topk_platform.specs.fields import check_fields, one_of
from topk_platform.specs.search.active import active_names, check_conditions
from topk_platform.specs.search.space import Choice, Dimension, Scalar

__all__ = ["Loss"]

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

    Raises:
        UserError: if ``first`` does not give every active dimension one value inside it, a parameter is both fixed
            and searched, a condition or a schedule names an unknown dimension, or conditions form a circle.

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", reference_of("loss", self.name))
        check_fields(self)
        object.__setattr__(self, "label", self.label or self.name.rpartition(":")[2])
        check_name("loss label", self.label)
        both = sorted(set(self.space) & set(self.fixed))
        check(not both, f"loss {self.label}: {both} cannot be both in space and fixed")
        check_conditions(self.label, self.space)
        self._check_first()
        for name, schedule in self.schedules.items():
            self._check_schedule(name, schedule)
        first = {name: self.space[name].canonical(value) for name, value in self.first.items()}
        object.__setattr__(self, "first", first)

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

    def _check_first(self) -> None:
        needed = active_names(self.space, self.first)
        check(
            set(self.first) == set(needed),
            f"loss {self.label}: first must give one value for each of {sorted(needed)}, got {sorted(self.first)}",
        )
        for name, value in self.first.items():
            check(
                self.space[name].holds(value),
                f"loss {self.label}: first[{name!r}] must lie in {self.space[name]}, got {value!r}",
            )

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
