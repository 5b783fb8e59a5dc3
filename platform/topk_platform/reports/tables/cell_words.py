"""The texts of a cell: its mean, its seeds, its difference to the baseline, and the runs that it lacks."""

from __future__ import annotations

from topk_platform.records import Tally
from topk_platform.reports.words import number
from topk_platform.results.cells import Cell
from topk_platform.results.intervals import Estimate
from topk_platform.specs import Published

__all__ = [
    "ALIKE",
    "DOWN",
    "UP",
    "count",
    "counted_seeds",
    "difference",
    "ends",
    "mark",
    "mean",
    "missing",
    "published",
    "tested",
]

UP, DOWN, ALIKE = "▲", "▼", "≈"


_MARKS = {True: {"": "", "better": UP, "worse": DOWN}, False: {"": "", "better": "△", "worse": "▽"}}


_ONCE = "one search"


def mean(cell: Cell) -> str:
    """Return a cell's mean with its interval; a dash if it has none."""
    return "–" if cell.value is None else number(cell.value, metric=cell.metric)


def count(cell: Cell) -> str:
    """Return the number of seeds of a cell's mean, and whether its arm was searched once."""
    return "" if cell.value is None else f"({counted_seeds(cell.value)})"


def counted_seeds(estimate: Estimate) -> str:
    """Return the number of seeds of an estimate, and whether it comes from a single search."""
    return f"n = {estimate.n}{f', {_ONCE}' if estimate.once else ''}"


def mark(cell: Cell) -> str:
    """Return a cell's marks: ▲ or ▼, hollow in a secondary metric, and ≈ if it is equivalent to the baseline."""
    return " ".join(filter(None, (_MARKS[cell.primary][cell.mark], ALIKE if cell.equivalent else "")))


def missing(cell: Cell) -> str:
    """Return which runs a cell lacks because they diverged or failed; empty if none."""
    if cell.confirmed.lost:
        return f"({ends(cell.confirmed, 'seeds')})"
    fruitless = cell.searched.ended and not cell.searched.completed
    return f"({ends(cell.searched, 'search trials')})" if fruitless else ""


def ends(tally: Tally, what: str) -> str:
    """Return how runs ended, such as "3 of 5 seeds, 2 diverged"."""
    counts = {"pruned": tally.pruned, "diverged": tally.diverged, "failed": tally.failed}
    parts = [f"{tally.completed} of {tally.ended} {what}"]
    return ", ".join(parts + [f"{count} {name}" for name, count in counts.items() if count])


def published(number: Published) -> str:
    """Return a paper's number. Its standard deviation has the label "sd", because it is not an interval."""
    parts = [
        number.split if number.split != "test" else "",
        "" if number.spread is None else f"sd {number.spread:.1f}",
        "" if number.runs is None else f"n = {number.runs}",
    ]
    details = ", ".join(filter(None, parts))
    return f"published {number.value:.1f}" + (f" ({details})" if details else "")


def difference(cell: Cell) -> str:
    """Return a cell's difference to the baseline with its mark; empty if it has none."""
    if cell.difference is None:
        return ""
    pairs, value = cell.difference, cell.value
    same = value is not None and value.n == pairs.n
    text = ["" if same else f"n = {pairs.n}", _ONCE if pairs.once and value and not value.once else ""]
    behind = f" ({', '.join(filter(None, text))})" if any(text) else ""
    return f"{number(pairs, signed=True, metric=cell.metric)}{behind} {mark(cell)}".rstrip()


def tested(estimate: Estimate | None) -> str:
    """Return an estimate with its n; a dash for None."""
    return "–" if estimate is None else f"{number(estimate)} (n = {estimate.n})"
