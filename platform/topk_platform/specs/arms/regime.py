"""A dataset and the conditions that change its training split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topk_platform.references import reference_of
from topk_platform.specs.arms.conditions import Condition
from topk_platform.specs.checks import check_name
from topk_platform.specs.fields import check_fields
from topk_platform.specs.search.space import Scalar

__all__ = ["Regime"]


@dataclass(frozen=True)
class Regime:
    """A dataset under conditions.

    Args:
        name: Its name in tables.
        dataset: A name in the platform's table, or ``package.module:attribute`` of your own function, or the function
            itself, if every process can import it; the dataset is then its reference. One that has a parameter
            ``generator`` draws fresh data for every seed.
        conditions: Applied to the training split, in order.
        options: Keyword arguments of the dataset's function.
    """

    name: str
    dataset: str
    conditions: tuple[Condition, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset", reference_of("dataset", self.dataset))
        check_fields(self)
        check_name("regime name", self.name)

    @property
    def condition_files(self) -> tuple[str, ...]:
        """The files in the data folder that its conditions read."""
        return tuple(file for condition in self.conditions if (file := getattr(condition, "file", "")))
