"""The parameters of a trial, divided into those of the recipe and those of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from topk_platform.specs.arms.loss import Loss
from topk_platform.specs.arms.recipe import SEARCHABLE, Recipe
from topk_platform.specs.arms.schedule import Parameter, Schedule
from topk_platform.specs.search.space import Scalar

__all__ = ["Setting", "numbers"]


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
