"""A study's answer in two or three sentences. Fixed rules write them, and they claim no more than the tests show."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from topk_platform.reports.words import more_searches, number, points, title_of
from topk_platform.results.cells import Cell, Mark
from topk_platform.results.intervals import Estimate
from topk_platform.results.table import Table
from topk_platform.specs import digits_of, less_is_better, scale_of, unit_of
from topk_platform.specs.checks import first_few

__all__ = ["answer"]

_NAMED = 3  # the most regimes, or losses, that a sentence names
_SEEDS = 3  # seeds that a test needs

_Cells = Mapping[tuple[str, str], Cell]


def answer(table: Table, metric: str) -> str:
    """Return a table's answer by a metric.

    - A loss is called better or worse than the baseline only if the table marks it: p is below 0.05 after Holm's
      correction for all differences of the metric's family, there are three pairs of seeds or more, and no seed was
      lost that would have made the loss worse.
    - Of several such losses in a regime, the one with the largest difference is named, and the number of the others.
      None is called better than another, because that was not tested.
    - If no loss is better, it says how large a difference would mostly be missed: the median over the tests of the
      size that has a chance of 80 % to be marked.
    - If nothing was tested, it says why, and what to do about it.
    - Losses that are shown to lie within the study's tolerance are named.
    - It says what to choose if one must choose now: the best mean of each regime in which no loss is better.
    - It ends with the networks that are marked as better or worse than the first one, with the same loss.

    Args:
        table: The table.
        metric: The metric, such as ``"top5"``.
    """
    cells = {key[:2]: cell for key, cell in table.cells.items() if key[2] == metric}
    known = {key: cell.value for key, cell in cells.items() if cell.value is not None}
    if not known:
        return "There are no results yet."
    sentences = [*_verdict(table, metric, cells), _equivalent(table, cells), _choice(table, cells)]
    if len(table.rows) == 1:
        means = [
            f"{number(v, metric=metric)} {unit_of(metric)} in {column}" for (_, column), v in known.items()
        ]
        sentences = [
            f"There is one loss, and nothing to compare it with: {table.rows[0]} reaches a {title_of(metric)} of "
            f"{first_few(means, _NAMED)}."
        ]
    return " ".join(filter(None, [*sentences, _networks(table)]))


def _networks(table: Table) -> str:
    """Return which networks are marked beside the first one; empty if none was tested."""
    tested = {key: cell for key, cell in table.network_cells.items() if cell.p_holm is not None}
    parts = []
    for mark in ("better", "worse"):
        texts = [
            f"{arm} by {number(_ahead(cell), metric=metric)} {unit_of(metric, difference=True)}"
            for (arm, _, metric), cell in tested.items()
            if cell.mark == mark
        ]
        parts += [f"{mark}: {first_few(texts, _NAMED)}"] if texts else []
    first = " or ".join(dict.fromkeys(network for _, network, _ in tested))
    return (
        f"Beside network {first}, {'; '.join(parts) or 'none is shown to be better or worse'}."
        if tested
        else ""
    )


def _verdict(table: Table, metric: str, cells: _Cells) -> list[str]:
    """Return which losses are marked, and what the tests would miss if none is better; or why nothing was tested."""
    baseline, name = table.study.baseline, title_of(metric)
    if baseline is None:
        return [f"The study has no baseline, so no difference in {name} was tested."]
    tested = [cell for cell in cells.values() if cell.p_holm is not None]
    if not tested:
        return [f"No difference to {baseline} in {name} was tested, because {_why_untested(table, cells)}."]
    better, worse = (_marked(table, cells, mark) for mark in ("better", "worse"))
    result = [f"In {name}, better than {baseline}: {better}."] if better else []
    if not better:
        either = "better" if worse else "better or worse"
        result = [f"No loss is shown to be {either} than {baseline} in {name}{_missed(metric, tested)}."]
    return [*result, f"Worse: {worse}."] if worse else result


def _why_untested(table: Table, cells: _Cells) -> str:
    differences = [cell.difference for cell in cells.values() if cell.difference is not None]
    if any(difference.once for difference in differences):
        more = f": `{more_searches(table.study, given=table.given)}` adds searches" if table.stored else ""
        return f"a loss was searched once, and another search may choose otherwise{more}"
    if any(difference.n >= _SEEDS for difference in differences):
        return "the differences of all seeds are equal, and show no spread to judge by"
    return "a test needs three seeds of both losses"


def _marked(table: Table, cells: _Cells, mark: Mark) -> str:
    """Return the losses with a mark: the one with the largest difference of each regime, the largest first."""
    leaders: list[tuple[float, str]] = []
    for column in table.columns:
        losses = [(row, cell) for (row, c), cell in cells.items() if c == column and cell.mark == mark]
        if losses:
            row, cell = max(losses, key=lambda loss: _ahead(loss[1]).mean)
            others = f", and {len(losses) - 1} more by less" if len(losses) > 1 else ""
            size = number(_ahead(cell), metric=cell.metric)
            unit = unit_of(cell.metric, difference=True)
            leaders.append((_ahead(cell).mean, f"in {column}, {row} by {size} {unit}{others}"))
    texts = [text for _, text in sorted(leaders, key=lambda leader: -leader[0])]
    more = [f"and in {len(texts) - _NAMED} more {table.across}s"] if len(texts) > _NAMED else []
    return "; ".join([*texts[:_NAMED], *more])


def _ahead(cell: Cell) -> Estimate:
    """Return a difference as a positive number, whichever side is better."""
    assert cell.difference is not None  # noqa: S101 - for the type checker
    return cell.difference if cell.difference.mean >= 0 else -cell.difference


def _missed(metric: str, tested: Sequence[Cell]) -> str:
    """Return the words for the size of difference that more than half of the tests would mostly miss."""
    primary = any(cell.primary for cell in tested)  # one family alone, because each has its own correction
    of_family = [cell for cell in tested if cell.primary == primary]
    sizes = [scale_of(metric) * cell.detectable for cell in of_family if cell.detectable is not None]
    if not sizes:
        return ""
    size = statistics.median_high(sizes)
    if unit_of(metric) == "%" and size > 100:
        return ", and these tests would miss a difference of any size"
    digits = digits_of(metric) if size < 1 else digits_of(metric) - 1
    return f"; a difference below about {size:.{digits}f} {unit_of(metric, difference=True)} would mostly be missed"


def _equivalent(table: Table, cells: _Cells) -> str:
    alike: dict[str, list[str]] = {}
    for (row, column), cell in cells.items():
        if cell.equivalent:
            alike.setdefault(column, []).append(row)
    parts = [f"in {column}, {' and '.join(rows)}" for column, rows in alike.items()]
    within = f"Shown to lie within {points(table.study.equivalence)} of {table.study.baseline}"
    return f"{within}: {first_few(parts, _NAMED)}." if parts else ""


def _choice(table: Table, cells: _Cells) -> str:
    """Return what to choose now: in each regime without a better loss, the one with the best mean."""
    best: dict[str, list[str]] = {}
    decided = {column for (_, column), cell in cells.items() if cell.mark == "better"}
    for column in (column for column in table.columns if column not in decided):
        rows = [row for (row, c), cell in cells.items() if c == column and cell.best]
        if rows:
            best.setdefault(rows[0], []).append(column)
    if not best:
        return ""
    every = len(table.columns) == 1
    parts = [row if every else f"{row} in {first_few(columns, _NAMED)}" for row, columns in best.items()]
    direction = "smallest" if any(less_is_better(cell.metric) for cell in cells.values()) else "highest"
    return (
        f"If you must choose now, take the {direction} mean, which may be chance: {'; '.join(parts[:_NAMED])}"
        f"{f'; and {len(parts) - _NAMED} more' if len(parts) > _NAMED else ''}."
    )
