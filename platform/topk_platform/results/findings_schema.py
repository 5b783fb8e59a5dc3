"""The parts of a file of findings in JSON, with checks of their types, because anybody may have written the file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar, get_args

from topk_platform.results.statistics.intervals import Covers
from topk_platform.specs import Status
from topk_platform.specs.fields import Count, Rule, Share, Whole, check_fields, one_of

__all__ = [
    "CellData",
    "ContrastData",
    "EstimateData",
    "MadeData",
    "PrecisionData",
    "RunsData",
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
    borrowed: Size


@dataclass(frozen=True)
class CellData:
    """A cell without its estimates and tallies, and without its marks, which are computed again."""

    stopped: bool
    improvement: Share | None
    metric: str
    differences: Mapping[str, float]


_RUN = Rule("a status and a key", lambda run: len(run) == 2 and run[0] in get_args(Status))


@dataclass(frozen=True)
class RunsData:
    """The confirmations of an arm: status and key by seed."""

    runs: Mapping[str, Annotated[Sequence[str], _RUN]]
