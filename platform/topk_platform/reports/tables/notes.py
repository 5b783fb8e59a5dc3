"""The lines below a table: which results are missing, and what is special about the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topk_platform.identity import counts_in_words
from topk_platform.reports.tables.cell_words import DOWN, UP, ends
from topk_platform.reports.tables.legend import legend
from topk_platform.reports.words import command, more_searches, not_ended
from topk_platform.results.runs import Unlike
from topk_platform.results.table import Fruitless, Table
from topk_platform.results.tuning import Edge
from topk_platform.specs.checks import first_few, plural

__all__ = [
    "lost",
    "machine_kinds_line",
    "notes",
    "once",
    "partial",
    "range_edges_line",
    "striking",
    "without_ranks",
]

_SHOWN_EDGES = 4
_SHOWN_ARMS = 3


def notes(table: Table) -> list[str]:
    """Return the lines that explain the numbers, and the results that are missing in them."""
    lines = [
        legend(table),
        *striking(table),
        range_edges_line(table.edges, _report(table)),
        _uncounted(table),
        _environments(table),
        _choosers(table),
        machine_kinds_line(table.unlike, table.study.baseline),
        _sources(table),
    ]
    return [line for line in lines if line]


def striking(table: Table) -> list[str]:
    """Return the notes that nobody should overlook: on tests and results that are missing, for now or for good."""
    lines = (
        changed(table),
        partial(table),
        once(table),
        lost(table),
        without_ranks(table),
        *map(_fruitless, table.fruitless),
    )
    return list(filter(None, lines))


def changed(table: Table) -> str:
    """Return the line about a study or code that has changed since the results; empty if they have not."""
    if not table.changed:
        return ""
    what, again = (f"`{command(name, table.study, given=table.given)}`" for name in ("plan", "run"))
    return (
        "The study or the code has changed: these are the results that its last run counted. "
        f"{what} says what has changed, and {again} trains it anew."
    )


def once(table: Table) -> str:
    """Return the line about differences that are not tested because of a single search; empty if there are none.

    It also has the command that adds searches, if a store holds the others.
    """
    if not table.once:
        return ""
    return (
        "Not tested: differences between two losses if one of them was searched once. Another search may choose other "
        f"values, and an interval from one search does not cover that.{_more_searches(table)}"
    )


def _report(table: Table) -> str:
    return command("report", table.study, given=table.given) if table.stored else ""


def _more_searches(table: Table) -> str:
    if not table.stored:
        return ""
    return f" `{more_searches(table.study, given=table.given)}` adds the searches that are missing."


def partial(table: Table) -> str:
    """Return the line about trials that have not ended; empty if there are none, or if there is no result yet."""
    if not table.left or not (table.choices or table.confirmed.ended):
        return ""
    return f"Partial: {not_ended(table.left)}."


def lost(table: Table) -> str:
    """Return the line about confirmations without a result; empty if there are none."""
    result = table.confirmed
    if not result.ended:
        coming = len(table.fruitless) < len(table.confirmations)
        return "No confirmation has ended yet, so the study has no test results." if coming else ""
    if not result.lost:
        return ""
    counts = {"diverged": result.diverged, "failed": result.failed}
    text = " and ".join(f"{count} {name}" for name, count in counts.items() if count)
    return (
        f"Of {result.ended} confirmations, {text}. A mean is over the completed seeds. If a seed is missing, the mean "
        f"is not marked best or {UP}, and no difference to it is marked {DOWN}."
    )


def without_ranks(table: Table) -> str:
    """Return the line about confirmations that lack the ranks that intervals need; empty if there are none."""
    if not table.without_ranks:
        return ""
    again = f"`{command('run', table.study, given=table.given)}`" if table.stored else "Another run"
    return (
        f"Of {table.confirmed.completed} confirmations, {table.without_ranks} lack the ranks of their test images: "
        f"intervals over those leave out the choice of the test images, and may be too narrow. {again} trains these "
        "confirmations again."
    )


def _fruitless(results: Fruitless) -> str:
    """Return the line about an arm that will have no result, even if it is run again."""
    searched = results.phase == "search"
    text = ends(results.ends, "search trials" if searched else "confirmations")
    more = ", so there is no configuration to confirm" if searched else ""
    retry = ", except with --retry-failed" if results.ends.failed else ""
    return (
        f"No result of {results.arm}: {text}{more}. Running it again changes nothing{retry}. "
        f"The first of them, {results.key}: {results.reason}."
    )


def _uncounted(table: Table) -> str:
    if not table.outdated:
        return ""
    return (
        f"{sum(table.outdated.values())} recorded trials are not counted: {counts_in_words(table.outdated)}."
    )


def _environments(table: Table) -> str:
    """Return the line about trials that were made in several environments; empty if there is only one."""
    if not table.environments:
        return ""
    counts = counts_in_words(table.environments)
    return f"Machines or versions differ, and with them the last bits of results: {counts}."


def _choosers(table: Table) -> str:
    """Return the line about searches whose trials several versions of a package chose; empty if there are none."""
    if not table.choosers:
        return ""
    parts = {
        f"{row}, {column}": ", ".join(
            f"from trial {number} on {version}" for number, version in result.items()
        )
        for (row, column), result in table.choosers.items()
    }
    alike: dict[str, list[str]] = {}
    for key, versions in parts.items():
        alike.setdefault(versions, []).append(key)
    text = "; ".join(f"{first_few(keys, 3)}: {versions}" for versions, keys in alike.items())
    return f"Several versions chose the trials of these searches, so no single version would repeat them: {text}."


def _sources(table: Table) -> str:
    """Return the line about the sources of the published numbers; empty if there are none."""
    numbers = [cell.published for cell in table.cells.values() if cell.published is not None]
    if not numbers:
        return ""
    line = f"Published: {'; '.join(dict.fromkeys(number.source for number in numbers))}."
    if any(number.spread is not None for number in numbers):
        line += " sd is the standard deviation over its n runs, not an interval."
    if any(number.split == "validation" for number in numbers):
        line += " Numbers with the word validation are results on the paper's validation split, not on a test split."
    return line


def range_edges_line(chosen: Sequence[tuple[str, Edge]], lists: str = "") -> str:
    """Return the line about chosen values near an end of their range; empty if there are none.

    Args:
        chosen: These values, each with the name of its arm.
        lists: The command that lists all of them; empty if there is none, as for findings.
    """
    if not chosen:
        return ""
    shown = "; ".join(f"{arm}: {edge.in_words}" for arm, edge in chosen[:_SHOWN_EDGES])
    listed = f", which `{lists}` lists" if lists else ""
    more = f"; and {len(chosen) - _SHOWN_EDGES} more{listed}" if len(chosen) > _SHOWN_EDGES else ""
    return (
        f"Chosen within 5 % of an end of its range, so that better values may lie beyond: {shown}{more}. "
        "A wider range is another search, which trains all trials of its arm anew."
    )


def machine_kinds_line(result: Mapping[tuple[str, str], Unlike], baseline: str | None) -> str:
    """Return the line about differences between runs on different kinds of machine; empty if there are none.

    Args:
        result: The pairs of runs on different kinds of machine, by row and column.
        baseline: The label of the baseline.

    Example:
        >>> pairs = {("svm", "clean"): {2: ("NVIDIA L4", "NVIDIA T4")}}
        >>> machine_kinds_line(pairs, "cross_entropy").partition("difference: ")[2]
        'svm, clean: seed 2 on NVIDIA L4, cross_entropy on NVIDIA T4.'
    """
    if not result:
        return ""
    count = sum(map(len, result.values()))
    parts = [f"{row}, {column}: {_seeds(pairs, baseline or '')}" for (row, column), pairs in result.items()]
    more = [f"and {len(parts) - _SHOWN_ARMS} more arms"] if len(parts) > _SHOWN_ARMS else []
    return (
        f"Different kinds of machine within {plural(count, 'pair')} of compared runs, which is part of "
        f"the difference: {'; '.join(parts[:_SHOWN_ARMS] + more)}."
    )


def _seeds(pairs: Unlike, baseline: str) -> str:
    by_kinds: dict[tuple[str, str], list[str]] = {}
    for seed, kinds in pairs.items():
        by_kinds.setdefault(kinds, []).append(str(seed))
    return ", ".join(
        f"seed{'s' if len(seeds) > 1 else ''} {' and '.join(seeds)} on {ours or 'unknown'}, "
        f"{baseline} on {theirs or 'unknown'}"
        for (ours, theirs), seeds in by_kinds.items()
    )
