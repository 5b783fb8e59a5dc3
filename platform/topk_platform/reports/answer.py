"""A study's answer in a few sentences. Fixed rules write them, and they claim no more than the numbers support."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from topk_platform.reports import words
from topk_platform.reports.detectable import chance_to_see
from topk_platform.results.cells import Cell
from topk_platform.results.intervals import Estimate
from topk_platform.results.table import ChosenValues, Table, row_and_column
from topk_platform.specs import Arm, digits_of, less_is_better, scale_of, unit_of
from topk_platform.specs.checks import first_few, plural

__all__ = ["answer"]

_NAMED = 3  # the most columns that a sentence names one by one
_SEEDS = 3  # seeds that a test needs
_FEWEST_KEPT = 2  # the least number of arms with kept first values that is worth a sentence


def answer(table: Table, metric: str) -> str:
    """Return a table's answer by a metric, in sentences.

    The rules:

    - A loss is called better or worse than the baseline only if the table marks it: p is below 0.05 after Holm's
      correction for all differences of the metric's family, there are three pairs of seeds or more, and no seed was
      lost that would have made the loss worse. A loss with a higher mean alone is not called better. A metric by which
      no arm was selected is called secondary.
    - If a loss or its baseline was searched once, nothing is tested, because another search may choose differently.
      The sentence says this, and gives the command that adds searches, if a store holds the others.
    - If several losses are better, the text names the one with the largest difference, and the number of the others.
      It does not call one of them better than another, because that was not tested. Worse losses are named in the same
      way.
    - If no loss is better, the text says how large a true difference would have been seen with a chance of 80 %, and
      how large a difference the intervals still allow. Without these sizes, "nothing was seen" says little.
    - A loss is called equivalent to the baseline if it is shown to be within the study's tolerance.
    - The text begins with trials that have not ended, lost confirmations, and too few seeds for a test.
    - The text ends with searches in which half of the trials or more diverged or failed. If half of the searched arms
      or more kept the values with which their search began, it gives their number, because a result of a loss that was
      hardly tuned says little.

    Args:
        table: The table.
        metric: The metric, such as ``"top5"``.
    """
    cells = {key[:2]: cell for key, cell in table.cells.items() if key[2] == metric}
    sentences = [
        _standing(table),
        *_verdict(table, metric, cells),
        _lost_searches(cells),
        _untuned(table),
    ]
    return " ".join(filter(None, sentences))


def _standing(table: Table) -> str:
    """Return which results are missing: trials that have not ended, and confirmations without a result."""
    ended = table.confirmed
    left = f"{words.not_ended(table.left)}, so this may still change." if table.left and ended.ended else ""
    lost = (
        f"Of {ended.ended} confirmations, {ended.lost} diverged or failed, without a result."
        if ended.lost
        else ""
    )
    return " ".join(filter(None, (lost, left)))


def _verdict(table: Table, metric: str, cells: Mapping[tuple[str, str], Cell]) -> list[str]:
    if not any(cell.value is not None for cell in cells.values()):
        return ["No confirmation has a result yet, so there is nothing to say."]
    name, baseline = words.title_of(metric), table.study.baseline
    if len({row.rpartition("/")[2] for row in table.rows}) == 1:  # a row may be a network and a loss
        means = _alone(table, metric, cells) if len(table.rows) == 1 else [_highest(table, cells)]
        return ["There is one loss, and nothing to compare it with.", *means]
    if baseline is None:
        return [f"The study has no baseline, so no difference in {name} was tested.", _highest(table, cells)]
    tested = {key: cell for key, cell in cells.items() if cell.p_holm is not None}
    if not tested:
        return [_untested(table, name, cells), _highest(table, cells)]
    better = _by_column(table, tested, "better")
    worse = _by_column(table, tested, "worse")
    columns = [c for c in table.columns if any(key[1] == c for key in tested)]
    parts = [_better(table, metric, better, columns)] if better else [_nobody(table, metric, tested, columns)]
    parts += [f"Marked as worse: {_in_words(table, worse)}."] if worse else []
    rest = _untested(table, name, cells) if _differences(cells) else ""
    return [*parts, _equivalent(table, tested), rest]


def _lost_searches(cells: Mapping[tuple[str, str], Cell]) -> str:
    """Return the sentence about searches in which half of the trials or more were lost; empty if there are none."""
    tallies = {arm: cell.searched for arm, cell in cells.items()}
    lost = [(row, column, t) for (row, column), t in tallies.items() if 0 < t.ended <= 2 * t.lost]
    if not lost:
        return ""
    named = [f"{row} in {column} ({t.lost} of {t.ended})" for row, column, t in lost]
    return f"Half of the search trials or more diverged or failed: those of {first_few(named, _NAMED)}."


def _untuned(table: Table) -> str:
    """Return the sentence about arms that kept the first values of their search; empty if fewer than half did.

    Arms whose searches are under way are left out: their first trial may be their only one.
    """
    arms = {row_and_column(table.study, table.across, arm): arm for arm in table.study.arms}
    chosen = {p: c for p, c in table.choices.items() if p in arms and _have_ended(table, arms[p], c)}
    kept = [p for p, choices in chosen.items() if all(c.values == arms[p].loss.first for c in choices)]
    if len(kept) < _FEWEST_KEPT or 2 * len(kept) < len(chosen):
        return ""
    return (
        f"{len(kept)} of {len(chosen)} searched arms kept the values that their search began with: no trial was better "
        "on validation data."
    )


def _have_ended(table: Table, arm: Arm, choices: Sequence[ChosenValues]) -> bool:
    """Return whether all searches of an arm have ended."""
    trials = table.study.trials
    return all(choice.trials >= arm.repeats.length(choice.search, trials) for choice in choices)


def _differences(cells: Mapping[tuple[str, str], Cell]) -> int:
    return sum(cell.difference is not None and cell.difference.once for cell in cells.values())


def _untested(table: Table, name: str, cells: Mapping[tuple[str, str], Cell]) -> str:
    """Return why differences were not tested."""
    whole = f"No difference in {name} to {table.study.baseline} was tested, because"
    if not (count := _differences(cells)):
        return f"{whole} {_unfit(cells)}."
    some = f"{count} difference{'s were' if count > 1 else ' was'} not tested, because"
    started = whole if count == sum(cell.difference is not None for cell in cells.values()) else some
    more = words.more_searches(table.study, given=table.given)
    added = f": `{more}` adds the searches that are missing" if table.stored else ""
    return f"{started} a loss was searched once, and another search may choose otherwise{added}."


def _unfit(cells: Mapping[tuple[str, str], Cell]) -> str:
    if any(cell.difference is not None and cell.difference.n >= _SEEDS for cell in cells.values()):
        return "the differences of all seeds are equal, and show no spread to judge by"
    return "a test needs three seeds of both losses"


def _equivalent(table: Table, tested: Mapping[tuple[str, str], Cell]) -> str:
    alike: dict[str, list[str]] = {}
    for (row, column), cell in tested.items():
        if cell.equivalent:
            alike.setdefault(column, []).append(row)
    if not alike:
        return ""
    parts = [f"in {column}, {' and '.join(rows)}" for column, rows in alike.items()]
    tolerance = words.points(table.study.equivalence)
    return f"Shown to lie within {tolerance} of {table.study.baseline}: {_first_columns(table, parts)}."


def _first_columns(table: Table, parts: Sequence[str]) -> str:
    others = len(parts) - _NAMED
    more = [f"and losses in {others} more {_plural(table, others)}"] if others > 0 else []
    return "; ".join([*parts[:_NAMED], *more])


_ByColumn = Mapping[str, Sequence[tuple[str, Cell]]]


def _by_column(table: Table, tested: Mapping[tuple[str, str], Cell], mark: str) -> _ByColumn:
    """Return the rows with a mark for each column that has such rows, the largest difference first."""
    result: dict[str, list[tuple[str, Cell]]] = {}
    for column in table.columns:
        marked = [(row, cell) for (row, c), cell in tested.items() if c == column and cell.mark == mark]
        if marked:
            result[column] = sorted(marked, key=lambda item: -abs(_ahead(item[1]).mean))
    return result


def _ahead(cell: Cell) -> Estimate:
    """Return how far a cell is ahead of the baseline: its difference, with the opposite sign if less is better."""
    result = cell.difference
    assert result is not None  # noqa: S101 - for the type checker
    return -result if less_is_better(cell.metric) else result


def _better(table: Table, metric: str, better: _ByColumn, columns: Sequence[str]) -> str:
    rest = [column for column in columns if column not in better]
    name = _named(metric, [cell for row in better.values() for _, cell in row])
    text = f"In {name.removesuffix(',')}, marked as better than {table.study.baseline}: {_in_words(table, better)}"
    if rest:
        where = f"in {rest[0]}" if len(rest) == 1 else f"in the other {len(rest)} {_plural(table, len(rest))}"
        text += f". {where[0].upper()}{where[1:]}, no loss is marked as better"
    return f"{text}."


def _in_words(table: Table, marked: _ByColumn) -> str:
    """Return the marked losses in words: the leader of each column, and at most three columns."""
    largest = sorted(marked, key=lambda column: -abs(_ahead(marked[column][0][1]).mean))
    return _first_columns(table, [_leader(column, marked[column]) for column in largest])


def _leader(column: str, marked: Sequence[tuple[str, Cell]]) -> str:
    row, cell = marked[0]
    more = len(marked) - 1
    sizes = [abs(_ahead(other).mean) for _, other in marked[:2]]
    by = "as much or less" if more and math.isclose(*sizes) else "less"
    others = f", and {more} other loss{'es' if more > 1 else ''} by {by}" if more else ""
    return f"in {column}, {row} by {_points(cell)}{others}"


def _points(cell: Cell) -> str:
    """Return the absolute value of a difference, with its n and p."""
    result = _ahead(cell)
    assert cell.p_holm is not None  # noqa: S101 - for the type checker
    size = words.number(result if result.mean >= 0 else -result, metric=cell.metric)
    unit = unit_of(cell.metric, difference=True)
    return f"{size} {unit} (n = {result.n}, {words.probability(cell.p_holm)} after Holm's correction)"


def _nobody(table: Table, metric: str, tested: Mapping[tuple[str, str], Cell], columns: Sequence[str]) -> str:
    ends = [_ahead(cell).high for cell in tested.values() if cell.difference and not cell.mark]
    known = [end for end in ends if not math.isnan(end)]
    room = (
        f" That does not show that they are equal: 95 % intervals reach up to {_room(metric, max(known))}."
        if known and max(known) > 0
        else ""
    )
    where = f"in {columns[0]}" if len(columns) == 1 else f"in any of {len(columns)} {_plural(table, 2)}"
    return (
        f"No loss is marked as better than {table.study.baseline} in {_named(metric, list(tested.values()))} {where} "
        f"({plural(len(tested), 'difference')} tested).{_seen(metric, tested)}{room}"
    )


def _named(metric: str, cells: Sequence[Cell]) -> str:
    """Return a metric's name; if no arm was selected by the metric, the name is followed by "a secondary metric"."""
    name = words.title_of(metric)
    return name if any(cell.primary for cell in cells) else f"{name}, a secondary metric,"


def _seen(metric: str, tested: Mapping[tuple[str, str], Cell]) -> str:
    """Return how large a true difference the tests would have seen."""
    sizes = [cell.detectable for cell in tested.values() if cell.detectable is not None]
    if not sizes:
        return ""
    return f" {chance_to_see(metric, sizes, 'would have been seen with a chance of 80 %', 'them')}."


def _room(metric: str, most: float) -> str:
    less, unit = less_is_better(metric), unit_of(metric, difference=True)
    return f"{scale_of(metric) * (-most if less else most):+.{digits_of(metric)}f} {unit}"


def _alone(table: Table, metric: str, cells: Mapping[tuple[str, str], Cell]) -> list[str]:
    known = [(key, cell.value) for key, cell in cells.items() if cell.value is not None]
    parts = [
        f"{words.number(v, metric=metric)} {unit_of(metric)} in {column} (n = {v.n})"
        for (_, column), v in known[:_NAMED]
    ]
    return [f"{table.rows[0]} reaches a {words.title_of(metric)} of {', '.join(parts)}."]


def _plural(table: Table, count: int) -> str:
    return table.across if count == 1 else f"{table.across}s"


def _highest(table: Table, cells: Mapping[tuple[str, str], Cell]) -> str:
    """Return the losses with the highest means; this does not claim that one of them is better."""
    best: dict[str, list[str]] = {}
    for (row, column), cell in cells.items():
        if cell.best:
            best.setdefault(column, []).append(row)
    if len(cells) < 2 or not best:
        return ""
    parts = [f"{_tied(rows)} in {column}" for column, rows in list(best.items())[:_NAMED]]
    more = (
        f", and others in {len(best) - len(parts)} more {_plural(table, 2)}" if len(best) > len(parts) else ""
    )
    lowest = any(less_is_better(cell.metric) for cell in cells.values())
    extreme = "lowest" if lowest else "highest"
    return f"The {extreme} means, which may be chance, are those of {', '.join(parts)}{more}."


def _tied(rows: Sequence[str]) -> str:
    return first_few(rows, _NAMED) if len(rows) > _NAMED else " and ".join(rows)
