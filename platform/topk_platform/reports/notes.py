"""The lines around a table: the conditions of its numbers, the legend, missing results, and what is special."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from topk_platform.identity import counts_in_words
from topk_platform.protocol import Tally
from topk_platform.references import is_reference
from topk_platform.reports.words import ERRORS, command, in_range, points
from topk_platform.results.intervals import ONE_SEARCH
from topk_platform.results.table import Fruitless, Table
from topk_platform.specs.checks import first_few, plural
from topk_platform.specs.metric_names import GROUPS, less_is_better

__all__ = [
    "caption",
    "ends",
    "legend",
    "notes",
    "setting",
    "striking",
    "without_ranks",
]

_SHOWN = 3  # the most arms that a note names


def setting(table: Table) -> str:
    """Return the conditions of the numbers in one line: K, seeds, searches, and test images if their number is known.

    What differs among the arms is left out, because the table has a column for it.
    """
    study = table.study
    values = {cell.value.n for cell in table.cells.values() if cell.value is not None}
    searches = {arm.repeats.count for arm in study.arms if arm.is_searched}
    parts = [f"K = {', '.join(map(str, sorted({arm.k for arm in study.arms})))}"]
    parts += [plural(values.pop(), "seed")] if len(values) == 1 else []
    if len(searches) == 1:
        count = searches.pop()
        times = "one search" if count == 1 else f"{count} searches"
        epochs = [arm.recipe.epochs for arm in study.arms]
        each = (
            f"{plural(study.trials // count, 'trial')} of {in_range(epochs)} epoch{'s' * (max(epochs) > 1)}"
        )
        parts.append(f"{times} of {each}, the best on validation data is tested")
    counts: dict[str, list[int]] = {}
    for number, what in table.test_images.values():
        counts.setdefault(what, []).append(number)
    parts += [f"{in_range(numbers)} {what}" for what, numbers in counts.items()]
    return f"{'; '.join(parts)}."


def legend(table: Table, best: str = "bold") -> list[str]:
    """Return the lines that explain ± and the marks, at most three; ``best`` is the sign of the best mean."""
    baseline, shown = table.study.baseline, table.study.show
    fewer = ", ".join(ERRORS.get(metric, "sets") for metric in shown if less_is_better(metric))
    lines = [f"Mean over seeds ± half its 95 % interval{_covered(table)}; {best}: the best mean."]
    if baseline is not None and table.family_size:
        tolerance = table.study.equivalence
        equal = f"; ≈: equal to it within {points(tolerance)}" if tolerance else ""
        lines.append(
            f"▲▼: better or worse than {baseline}, p < 0.05 after Holm's correction for "
            f"{plural(table.family_size, 'difference')}; △▽: in a metric that selected nothing{equal}."
        )
    return [*lines, f"Less is better for: {fewer}."] if fewer else lines


def _covered(table: Table) -> str:
    """Return the words for what most intervals cover; empty without intervals."""
    counts = Counter(
        cell.value.covers
        for (_, _, metric), cell in table.cells.items()
        if metric in table.study.show and cell.value is not None and cell.value.n > 1
    )
    if not counts:
        return ""
    covers = counts.most_common(1)[0][0]
    names = {what for _, what in table.test_images.values()}
    images = names.pop() if len(names) == 1 else "test images"
    text = covers.removesuffix(ONE_SEARCH).replace("images", images)
    return f", over {text}{' (not the luck of the one search)' if covers.endswith(ONE_SEARCH) else ''}"


def caption(table: Table) -> str:
    """Return what a caption in a paper says: the conditions, the legend, and the sources of published numbers."""
    return " ".join([setting(table), *legend(table), *_sources(table)])


def striking(table: Table) -> list[str]:
    """Return the lines that nobody should overlook: on results that are missing, for now or for good."""
    confirmed, lines = table.confirmation_ends, []
    if table.changed:
        what, again = (f"`{command(name, table.study, given=table.given)}`" for name in ("plan", "run"))
        lines.append(
            "The study or the code has changed: these are the results that its last run counted. "
            f"{what} says what has changed, and {again} trains it anew."
        )
    if table.left and (table.choices or confirmed.ended):
        lines.append(f"Partial: {plural(table.left, 'trial')} left to run, so this may still change.")
    if confirmed.lost:
        lines.append(
            f"Of {confirmed.ended} confirmations, {confirmed.diverged} diverged and {confirmed.failed} failed. Means "
            "are over the others, and no loss is marked where the lost ones would count against it."
        )
    lines += filter(None, [without_ranks(table)])
    return [*lines, *map(_fruitless, table.fruitless)]


def without_ranks(table: Table) -> str:
    """Return the line about confirmations that lack the ranks that intervals need; empty if there are none."""
    if not table.without_ranks:
        return ""
    again = f"`{command('run', table.study, given=table.given)}`" if table.stored else "Another run"
    return (
        f"Of {table.confirmation_ends.completed} confirmations, {table.without_ranks} lack the ranks of their test "
        "images: their intervals leave out the choice of the images, and may be too narrow. "
        f"{again} trains these again."
    )


def ends(tally: Tally) -> str:
    """Return how runs ended.

    Example:
        >>> ends(Tally(completed=3, diverged=2))
        '3 of 5, 2 diverged'
    """
    counts = {"pruned": tally.pruned, "diverged": tally.diverged, "failed": tally.failed}
    parts = [f"{tally.completed} of {tally.ended}"]
    return ", ".join(parts + [f"{count} {name}" for name, count in counts.items() if count])


def _fruitless(result: Fruitless) -> str:
    """Return the line about an arm that will have no result, even if it is run again."""
    what = "search trials" if result.phase == "search" else "confirmations"
    none = ", so there is no configuration to confirm" if result.phase == "search" else ""
    retry = ", except with --retry-failed" if result.ends.failed else ""
    return (
        f"No result of {result.arm}: {what} {ends(result.ends)}{none}. Running it again changes nothing{retry}. The "
        f"first of them, {result.key}: {result.reason}."
    )


def notes(table: Table) -> list[str]:
    """Return what is special about a table's results, a line each."""
    lines = [
        *_empty_groups(table),
        *_not_measured(table),
        *_lost_searches(table),
        *_sources(table),
    ]
    if table.outdated:
        counts = counts_in_words(table.outdated)
        lines.append(f"{sum(table.outdated.values())} recorded trials are not counted: {counts}.")
    if table.environments:
        counts = counts_in_words(table.environments)
        lines.append(
            f"Machines or versions differ, and with them the last bits of results, or what searches choose: {counts}."
        )
    return list(filter(None, lines))


def _empty_groups(table: Table) -> Iterator[str]:
    """Yield a line for each metric of a group of classes that has no value in some columns."""
    completed = {
        c
        for (_, c), rows in table.confirmations.items()
        if any(r["status"] == "completed" for r in rows.values())
    }
    for metric in table.study.show:
        filled = {c for (_, c, m), cell in table.cells.items() if m == metric and cell.value is not None}
        empty = [column for column in table.columns if column in completed - filled]
        if empty and metric.partition("_")[0] in GROUPS:
            yield (
                f"{metric} has no value in {', '.join(empty)}: many-, medium- and few-shot classes (above 100, 20 to "
                "100, below 20 training samples) are measured where a training split has two of these groups."
            )


def _not_measured(table: Table) -> Iterator[str]:
    """Yield a line for each measure of the user's own that some completed confirmations lack."""
    rows = [
        row for rows in table.confirmations.values() for row in rows.values() if row["status"] == "completed"
    ]
    for metric in filter(is_reference, table.study.measures):
        lacking = [row for row in rows if row[f"test.{metric}"] is None]
        why = next(
            filter(None, (json.loads(r.get("own") or "{}").get(metric, {}).get("why") for r in lacking)), ""
        )
        if lacking:
            again = command("run", table.study, "--measures", given=table.given)
            yield (
                f"{metric} is not measured in {len(lacking)} of {plural(len(rows), 'confirmation')}: "
                f"{why or 'they were trained before it was asked for, or before its code changed'}. `{again}` trains "
                "these again."
            )


def _lost_searches(table: Table) -> Iterator[str]:
    """Yield a line about searches in which half of the trials or more were lost."""
    tallies = {key[:2]: cell.searched for key, cell in table.cells.items()}
    lost = [
        f"{r} in {c} ({t.lost} of {t.ended})" for (r, c), t in tallies.items() if 0 < t.ended <= 2 * t.lost
    ]
    if lost:
        yield f"Half of the search trials or more diverged or failed: {first_few(lost, _SHOWN)}."


def _sources(table: Table) -> Iterator[str]:
    """Yield the line about the sources of the published numbers."""
    numbers = [cell.published for cell in table.cells.values() if cell.published is not None]
    if not numbers:
        return
    line = f"Published: {'; '.join(dict.fromkeys(number.source for number in numbers))}."
    if any(number.spread is not None for number in numbers):
        line += " sd is the standard deviation over its n runs, not an interval."
    if any(number.split == "validation" for number in numbers):
        line += " Numbers with the word validation are of the paper's validation split."
    yield line
