"""The parts of a file of findings in JSON, with checks of their types, because anybody may have written the file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar, get_args

from topk_platform.results.intervals import Covers
from topk_platform.specs import Status
from topk_platform.specs.checks import check
from topk_platform.specs.fields import Count, Rule, Share, Whole, check_fields, one_of

__all__ = [
    "CellData",
    "ContrastData",
    "EstimateData",
    "MadeData",
    "PrecisionData",
    "RunsData",
    "Situation",
    "Situations",
    "TableData",
    "part_of",
]

T = TypeVar("T")
Size = Annotated[float, Rule("a finite number of at least 0", lambda size: 0 <= size < math.inf)]


def part_of(kind: type[T], text: Mapping[str, Any]) -> T:
    """Return a part of a file as its dataclass.

    Args:
        kind: The dataclass.
        text: The part, a JSON object; keys that the dataclass lacks are ignored.

    Raises:
        KeyError, TypeError: if the part is not an object, or lacks a field.
        UserError: if a field is of another type or out of range.
    """
    result = kind(**{field.name: text[field.name] for field in fields(kind)})  # type: ignore[arg-type]
    check_fields(result)
    return result


@dataclass(frozen=True)
class Situation:
    """A description of a regime's data, after its conditions.

    Args:
        classes: The number of classes.
        images: Training images, of all classes together.
        imbalance: The largest class's number of images over the smallest's.
        noise: The share of training labels that are replaced at random.
        k: K, the number of guesses that count.

    Raises:
        UserError: if a number is out of range, or K is not below the number of classes.
    """

    classes: Annotated[int, Rule("at least 2", lambda value: value >= 2)]
    images: Count
    imbalance: Annotated[float, Rule("at least 1, the largest class over the smallest", lambda v: v >= 1)]
    noise: Share
    k: Count

    def __post_init__(self) -> None:
        check_fields(self)
        of_classes = f"of {self.classes} classes"
        check(self.k < self.classes, f"k must be below the number of classes, got {self.k} {of_classes}")
        check(
            self.images >= self.classes,
            f"images must be at least the number of classes, got {self.images} {of_classes}",
        )


Situations = Mapping[tuple[str, int], Situation]
"""The description of each regime at each K, by the regime's name and K."""


@dataclass(frozen=True)
class TableData:
    """The parts of the table that are not its cells."""

    across: Annotated[str, one_of("regime", "model")]
    left: Whole
    tested: Mapping[str, Whole]
    units: Mapping[str, str]


@dataclass(frozen=True)
class MadeData:
    """The findings' origin."""

    trials: Whole
    code_versions: tuple[str, ...]
    environments: tuple[str, ...]
    datasets: Mapping[str, str]
    package: str
    note: str


@dataclass(frozen=True)
class EstimateData:
    """An estimate, in which None stands for NaN."""

    mean: float | None
    half_width: float | None
    low: float | None
    high: float | None
    p: Share | None
    n: Count
    covers: Annotated[str, one_of(*get_args(Covers))]


@dataclass(frozen=True)
class ContrastData:
    """The result of a claim's contrast without its estimate."""

    why: str
    waits: bool


@dataclass(frozen=True)
class PrecisionData:
    """The parts of an estimate's variance, in which None stands for an infinite number of images."""

    by_seeds: Size
    by_images: Size
    rows: Count
    images: Size | None
    groups: Size | None


@dataclass(frozen=True)
class CellData:
    """A cell without its estimates and tallies, and without its marks, which are computed again."""

    metric: str
    differences: Mapping[str, float]


_RUN = Rule("a status and a key", lambda run: len(run) == 2 and run[0] in get_args(Status))


@dataclass(frozen=True)
class RunsData:
    """The confirmations of an arm: status and key by seed."""

    runs: Mapping[str, Annotated[Sequence[str], _RUN]]
