"""Explanations of a table's numbers and marks: intervals, tests, and the conditions of the study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from topk_platform.reports.detectable import chance_to_see
from topk_platform.reports.tables.cell_words import ALIKE, DOWN, UP
from topk_platform.reports.words import ERRORS, in_range, points
from topk_platform.results.cells import Cell, CellKey
from topk_platform.results.intervals import ONE_SEARCH, Covers
from topk_platform.results.table import Table
from topk_platform.specs import Study
from topk_platform.specs.checks import plural
from topk_platform.specs.metric_names import GROUPS, less_is_better

__all__ = ["counted", "covered", "detectable", "empty_group", "legend", "setting"]

_COVERED: dict[Covers, str] = {
    "seeds": "fresh seeds alone, not the choice of the test images",
    "seeds and images": "fresh seeds and other test images",
    "searches and seeds": "repeated searches and fresh seeds, not the choice of the test images",
    "searches, seeds and images": "repeated searches, fresh seeds and other test images",
    "seeds, one search": "fresh seeds alone, not the choice of the test images, and not the luck of the search, "
    "which was made once",
    "seeds and images, one search": "fresh seeds and other test images; not the luck of the search, which was made "
    "once",
}


def legend(table: Table) -> str:
    """Return the line that explains ± and the marks."""
    text = (
        "Test accuracy: the mean over seeds ± half the width of its 95 % interval; the best mean of a column is "
        f"marked. {covered(table)}"
    )
    if less := list(filter(less_is_better, table.study.show)):
        fewer = ", ".join(dict.fromkeys(ERRORS.get(metric, "sets") for metric in less))
        text += f" Of {fewer} less is better: the smallest mean is marked, and {UP} marks smaller ones."
    if table.study.baseline is None:
        return text
    text = f"{text} Below a mean, its difference to {table.study.baseline} over the same seeds"
    if not table.tests and not table.once:
        return f"{text}, which is tested from three seeds on."
    return f"{text}{_marks(table)}{_equivalence(table)}."


def _marks(table: Table) -> str:
    """Return what the marks mean; empty if nothing was tested."""
    if not table.tests:
        return ""
    shown = _cells(table, table.study.show).values()
    secondary = any(not cell.primary and cell.p_holm is not None for cell in shown)
    also = "; △▽: the same for each metric that selected no arm" if secondary else ""
    return (
        f"; {UP}{DOWN}: p below 0.05 after Holm's correction for the {counted(table)} in the metric of the "
        f"search, over three seeds or more{also}"
    )


def _cells(table: Table, metrics: Sequence[str]) -> Mapping[CellKey, Cell]:
    """Return the cells of some metrics in a table's rows. A table that is a model's part has all models' cells."""
    rows = set(table.rows)
    return {key: cell for key, cell in table.cells.items() if key[0] in rows and key[2] in metrics}


def _equivalence(table: Table) -> str:
    tolerance = table.study.equivalence
    if not tolerance or not table.tests:
        return ""
    return f"; {ALIKE}: shown to lie within {points(tolerance)}, by two one-sided tests, corrected likewise"


def covered(table: Table) -> str:
    """Return what the intervals cover and what they leave out, the most frequent kind first."""
    counts = Counter(
        cell.value.covers
        for cell in _cells(table, table.study.show).values()
        if cell.value is not None and cell.value.n > 1
    )
    if not counts:
        return "An interval needs two seeds or more."
    (usual, _), *others = counts.most_common()
    rest = "".join(_unusual(usual, covers, n) for covers, n in others)
    units = set(table.units.values())
    text = f"Intervals cover {_COVERED[usual]}{rest}."
    return text.replace("test images", units.pop() if len(units) == 1 else "test images")


def _unusual(usual: Covers, covers: Covers, cells: int) -> str:
    """Return what the intervals of some cells cover, or where a search is all that sets them apart, only that."""
    if usual == covers + ONE_SEARCH:
        return f"; in {plural(cells, 'cell')} nothing was searched"
    if covers == usual + ONE_SEARCH:
        return f"; those of {plural(cells, 'cell')} leave out the luck of the search, which was made once"
    return f"; those of {plural(cells, 'cell')} cover {_COVERED[covers]}"


def counted(table: Table) -> str:
    """Return in words how many differences of a metric a table tests, such as "1 difference" or "6 differences"."""
    return plural(table.tests, "difference")


def detectable(table: Table, metric: str) -> str:
    """Return the line about the size of difference that the tests can detect; empty if nothing could be tested."""
    cells = [cell for cell in _cells(table, [metric]).values() if cell.detectable is not None]
    sizes = [cell.detectable for cell in cells if cell.detectable is not None]
    if not sizes:
        return ""
    all_cells = f"the {len(sizes)} cells"
    text = chance_to_see(
        metric, sizes, "has a chance of 80 % to be marked", all_cells, each=f" in each of {all_cells}"
    )
    if all(cell.difference is not None and cell.difference.once for cell in cells):
        text = text.replace("has a chance", "would have a chance")
        return f"{text}, if the search had no luck. The search was made once, so none is marked."
    return f"{text}."


def empty_group(table: Table, metric: str) -> str:
    """Return the line that says why a group of classes has no accuracy in some columns; empty if there are none."""
    if metric.partition("_")[0] not in GROUPS:
        return ""
    ended = {
        column
        for (row, column), rows in table.confirmations.items()
        if row in table.rows and any(run["status"] == "completed" for run in rows.values())
    }
    filled = {key[1] for key, cell in _cells(table, [metric]).items() if cell.value is not None}
    empty = [column for column in table.columns if column in ended - filled]
    if not empty:
        return ""
    return (
        f"{metric} has no value in {', '.join(empty)}: the accuracy of many-, medium- or few-shot classes (above 100, "
        "20 to 100, below 20 training samples) is measured only if the training split has classes of at least two of "
        "these groups, and the test split has classes of the group itself."
    )


def setting(table: Table) -> str:
    """Return the sentence about the conditions of the numbers: K, trials, seeds, and test images.

    It gives the number of test images if this number is known.
    """
    study = table.study
    ks = sorted({arm.k for arm in study.arms})
    searched = [arm for arm in study.arms if arm.is_searched]
    parts = [
        f"K = {', '.join(map(str, ks))}",
        _selected(study) if searched else "",
        f"{plural(study.seeds, 'fresh seed')} for each mean",
        _tested_on(table),
    ]
    return f"{'; '.join(filter(None, parts))}."


def _selected(study: Study) -> str:
    """Return the words for how configurations were selected."""
    whose = "each loss" if all(arm.is_searched for arm in study.arms) else "each loss that is searched"
    if study.searches == 1:
        return f"the configuration of {whose} is the best of {study.trials} trials on validation data"
    each = study.trials // study.searches
    best = f"the best of {each} trials on validation data"
    return f"{whose} is searched {study.searches} times, and each time {best} is chosen"


def _tested_on(table: Table) -> str:
    counts: dict[str, list[int]] = {}
    for column, number in table.tested.items():
        counts.setdefault(table.units.get(column, "test images"), []).append(number)
    return ", ".join(f"{in_range(numbers)} {what}" for what, numbers in counts.items())
