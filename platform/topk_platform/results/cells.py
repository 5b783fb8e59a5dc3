"""The cells of a table: means over the confirmed seeds, differences to the baseline, and their marks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from topk_platform.protocol import Tally
from topk_platform.results.contrasts import combined
from topk_platform.results.intervals import Estimate
from topk_platform.results.runs import Runs, sums
from topk_platform.results.significance import holm
from topk_platform.specs import Published, less_is_better, unit_of

__all__ = ["Cell", "CellKey", "Mark", "cell_of", "marked", "test_images_of"]

CellKey = tuple[str, str, str]
"""Row, column and metric."""

Mark = Literal["", "better", "worse"]

_ALPHA = 0.05
_DIGITS = 12  # means that differ only by rounding are equal
_SAME = 1e-6  # as above, where metrics are stored as single numbers


@dataclass(frozen=True)
class Cell:
    """A table's cell: one arm by one metric.

    Args:
        value: Mean test metric over the completed seeds; None if there are none.
        difference: The difference to the baseline, paired by seed and image; None for the baseline itself.
        best: Whether no other cell of this column has a better mean; never if a seed diverged or failed.
        published: What a paper printed for it, in percent.
        confirmed: How its seeds ended.
        searched: How its search trials ended.
        mark: Whether it is significantly better or worse than the baseline: its p-value, corrected for
            the differences of all cells of its family, is below 0.05. A seed that diverged or failed has no accuracy
            and would have lowered the mean: a cell with such seeds is never marked better, and if the baseline has such
            seeds, no cell is marked worse. If the arm or the baseline was searched once, there is no mark.
        differences: The differences by seed, whose mean is ``difference``.
        p_holm: The difference's p-value, Holm-corrected; None where nothing is tested, as without spread.
        family_size: How many differences of its family ``p_holm`` is corrected for; 0 where nothing is tested.
        metric: Its metric, which decides the unit shown; empty for an accuracy.
        primary: Whether its arm was selected by its metric. The other metrics are secondary.
        detectable: The minimal detectable effect: the size of a true difference that has a chance of 80 % to be marked.
            If an arm was searched once, it leaves out the luck of the search, so that the true value is larger; such an
            arm is never marked. None where there is nothing to test.
        p_equivalent: The p-value of equivalence within the study's tolerance, Holm-corrected; None where not tested.
        equivalent: Whether that is below 0.05.
        test_images: The number of test images, or of groups of them, that its interval covers, and their name, such as
            ``(160, "typefaces")``; None if it is not known.
    """

    value: Estimate | None
    difference: Estimate | None = None
    best: bool = False
    published: Published | None = None
    confirmed: Tally = field(default_factory=Tally)
    searched: Tally = field(default_factory=Tally)
    mark: Mark = ""
    differences: Mapping[int, float] = field(default_factory=dict)
    p_holm: float | None = None
    family_size: int = 0
    metric: str = ""
    primary: bool = True
    detectable: float | None = None
    p_equivalent: float | None = None
    equivalent: bool = False
    test_images: tuple[int, str] | None = None


def cell_of(
    ours: Runs,
    theirs: Runs,
    metric: str,
    published: Published | None = None,
    *,
    primary: bool = True,
) -> Cell:
    """Return the cell of an arm beside its baseline, unmarked.

    Args:
        ours: The arm's runs.
        theirs: The baseline's runs; empty for the baseline itself.
        metric: The metric.
        published: The number that a paper printed.
        primary: Whether the arm was selected by the metric.
    """
    return Cell(
        value=combined([(1, ours)], metric, difference=False),
        difference=combined([(1, ours), (-1, theirs)], metric),
        published=published,
        confirmed=ours.confirmed,
        searched=ours.searched,
        differences=sums([(1, ours), (-1, theirs)], metric),
        metric=metric,
        primary=primary,
        test_images=ours.test_images,
    )


def marked(cells: Mapping[CellKey, tuple[Cell, Tally]], tolerance: float = 0.0) -> dict[CellKey, Cell]:
    """Return a table's cells with their marks, corrected over all cells of a family, and the best of each column.

    The primary family is that of the cells whose arm was selected by the cell's metric. Every other metric is a
    secondary family of its own. On a test set with equally many images of each class an accuracy and its mean over
    classes are one question: the other of the two has the difference, the p-value and the mark of the first. A
    difference is not tested if its arm or the baseline was searched only once. A difference without spread is not
    tested either, but counts in the correction.

    Args:
        cells: The cells by row, column and metric, each with the tally of its baseline's confirmations.
        tolerance: Accuracies that differ by less are equivalent, as a fraction of 1; with 0, equivalence is not
            tested.
    """
    several = {k: c for k, (c, _) in cells.items() if c.difference is not None and c.difference.n > _LEAST}
    twins = {key: twin for key in several if (twin := _twin(key, several)) is not None}
    families: dict[str, dict[CellKey, Cell]] = {}
    for key, cell in several.items():
        if key not in twins:
            families.setdefault("" if cell.primary else key[2], {})[key] = cell
    result = {key: cell for key, (cell, _) in cells.items()}
    for family in families.values():
        result |= _judged(family, {key: cells[key][1] for key in family}, tolerance)
    for key, twin in twins.items():
        result[key] = replace(result[key], **{name: getattr(result[twin], name) for name in _OF_TEST})
    return _with_best(result)


_MACRO = "macro_"
_OF_TEST = (
    "difference",
    "p_holm",
    "family_size",
    "mark",
    "p_equivalent",
    "equivalent",
    "detectable",
    "primary",
)


def _twin(key: CellKey, cells: Mapping[CellKey, Cell]) -> CellKey | None:
    """Return the cell that asks the same of the same values: the primary one, or else the mean over images."""
    row, column, metric = key
    other = metric.removeprefix(_MACRO) if metric.startswith(_MACRO) else f"{_MACRO}{metric}"
    cell, twin = cells[key], cells.get((row, column, other))
    if twin is None or cell.primary or not (twin.primary or metric.startswith(_MACRO)):
        return None
    same = cell.differences.keys() == twin.differences.keys() and all(
        math.isclose(value, twin.differences[seed], abs_tol=_SAME) for seed, value in cell.differences.items()
    )
    return (row, column, other) if same else None


_LEAST = 2  # this many seeds are too few for a test


def _judged(
    family: Mapping[CellKey, Cell], theirs: Mapping[CellKey, Tally], tolerance: float
) -> dict[CellKey, Cell]:
    """Return the cells of a family with the results of their tests."""
    tests = {p: c.difference for p, c in family.items() if c.difference and not c.difference.once}
    level = 1 - _ALPHA / 2 / (len(tests) or len(family))
    holms = holm({key: result.p if result.has_spread else 1.0 for key, result in tests.items()})
    corrected = {key: p for key, p in holms.items() if tests[key].has_spread}
    within = {p: result.within(tolerance) for p, result in tests.items() if _in_points(p[2]) and tolerance}
    alike = holm({p: 1.0 if family[p].confirmed.lost or theirs[p].lost else v for p, v in within.items()})
    return {
        key: replace(
            cell,
            p_holm=corrected.get(key),
            family_size=len(tests) if key in corrected else 0,
            mark=_mark(cell, theirs[key], corrected.get(key, 1.0)),
            p_equivalent=alike.get(key),
            equivalent=alike.get(key, 1.0) < _ALPHA,
            detectable=_detectable(cell, level),
        )
        for key, cell in family.items()
    }


def _in_points(metric: str) -> bool:
    return not metric or unit_of(metric, difference=True) == "points"


def _detectable(cell: Cell, level: float) -> float | None:
    result = cell.difference
    if result is None or result.precision is None or not result.has_spread:
        return None
    return result.precision.detectable(level)


def _mark(cell: Cell, theirs: Tally, p: float) -> Mark:
    difference = cell.difference
    if difference is None or not difference.excludes_zero or p >= _ALPHA:
        return ""
    if (difference.mean > 0) != less_is_better(cell.metric):
        return "" if cell.confirmed.lost else "better"
    return "" if theirs.lost else "worse"


def test_images_of(cells: Mapping[CellKey, Cell]) -> dict[str, tuple[int, str]]:
    """Return the number of test images, or of groups of them, and their name, by column.

    Columns are left out if the intervals of their top-K accuracies do not cover images.

    Args:
        cells: The cells by row, column and metric.
    """
    plain = {key: cell for key, cell in cells.items() if key[2].startswith("top") and cell.test_images}
    return {
        key[1]: cell.test_images
        for key, cell in plain.items()
        if cell.test_images
        and cell.value is not None
        and cell.value.precision is not None
        and math.isfinite(cell.value.precision.images)
    }


def _with_best(cells: Mapping[CellKey, Cell]) -> dict[CellKey, Cell]:
    sound = {
        key: round(-cell.value.mean if less_is_better(key[2]) else cell.value.mean, _DIGITS)
        for key, cell in cells.items()
        if cell.value is not None and not cell.confirmed.lost
    }
    top: dict[tuple[str, str], float] = {}
    for (_, column, metric), mean in sound.items():
        top[column, metric] = max(mean, top.get((column, metric), mean))
    return {
        key: replace(cell, best=key in sound and sound[key] == top[key[1:]]) for key, cell in cells.items()
    }
