"""A table as Markdown and on the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from topk_platform.identity import told
from topk_platform.records import Tally
from topk_platform.reports.statistics import Estimate
from topk_platform.reports.table import Cell, Choice, Fruitless, Table
from topk_platform.specs import Published

__all__ = ["to_markdown", "to_rich"]

_UP, _DOWN = "▲", "▼"
_MARKS = {"": "", "better": _UP, "worse": _DOWN}


def metric_title(metric: str) -> str:
    """Return a metric's heading.

    Example:
        >>> metric_title("macro_top3")
        'macro-average top-3 accuracy, %'
    """
    kind, _, k = metric.rpartition("top")
    return f"{'macro-average ' if kind else ''}top-{k} accuracy, %"


def _number(found: Estimate, signed: bool = False) -> str:
    mean = f"{100 * found.mean:{'+' if signed else ''}.1f}"
    return mean if math.isnan(found.half_width) else f"{mean} ± {100 * found.half_width:.1f}"


def _mean(cell: Cell) -> str:
    return "–" if cell.value is None else _number(cell.value)


def _count(cell: Cell) -> str:
    return "" if cell.value is None else f"(n = {cell.value.n})"


def _missing(cell: Cell) -> str:
    """Return which runs a cell lacks, because they diverged or failed, or nothing if it lacks none."""
    if cell.confirmed.lost:
        return f"({_ends(cell.confirmed, 'seeds')})"
    fruitless = cell.searched.ended and not cell.searched.completed
    return f"({_ends(cell.searched, 'search trials')})" if fruitless else ""


def _ends(tally: Tally, what: str) -> str:
    counts = {"pruned": tally.pruned, "diverged": tally.diverged, "failed": tally.failed}
    parts = [f"{tally.completed} of {tally.ended} {what}"]
    return ", ".join(parts + [f"{count} {name}" for name, count in counts.items() if count])


def _published(number: Published) -> str:
    """Return a paper's number, its standard deviation named, so that nobody takes it for an interval."""
    told = [
        number.split if number.split != "test" else "",
        "" if number.spread is None else f"sd {number.spread:.1f}",
        "" if number.runs is None else f"n = {number.runs}",
    ]
    details = ", ".join(filter(None, told))
    return f"published {number.value:.1f}" + (f" ({details})" if details else "")


def _difference(cell: Cell) -> str:
    if cell.difference is None:
        return ""
    pairs = cell.difference.n
    count = "" if cell.value is not None and cell.value.n == pairs else f" (n = {pairs})"
    return f"{_number(cell.difference, signed=True)}{count} {_MARKS[cell.mark]}".rstrip()


def _notes(table: Table) -> list[str]:
    """Return the lines that say what the numbers mean and what they leave out."""
    lines = [
        _legend(table),
        _lost(table),
        *map(_fruitless, table.fruitless),
        _uncounted(table),
        _environments(table),
        _sources(table),
    ]
    return [line for line in lines if line]


def _legend(table: Table) -> str:
    text = (
        "Test accuracy: mean ± 95 % t-interval over fresh seeds; the best mean of a column is marked. Intervals cover "
        "what differs between seeds, not the sampling error of a test set that they share nor the luck of the search."
    )
    if table.study.baseline is None:
        return text
    return (
        f"{text} Below it, the difference to {table.study.baseline}, paired by seed; {_UP}{_DOWN}: its interval "
        "excludes 0, of three pairs or more that are not all equal (not corrected for the number of comparisons)."
    )


def _lost(table: Table) -> str:
    found = table.confirmed
    if not found.ended:
        coming = len(table.fruitless) < len(table.confirmations)
        return "No confirmation has ended yet: there are no numbers of ours." if coming else ""
    if not found.lost:
        return ""
    counts = {"diverged": found.diverged, "failed": found.failed}
    told = " and ".join(f"{count} {name}" for name, count in counts.items() if count)
    return (
        f"Of {found.ended} confirmations, {told}. A mean is that of the seeds that were completed; where others were "
        f"not, it is marked neither best nor {_UP}, nor is a difference to it {_DOWN}."
    )


def _fruitless(found: Fruitless) -> str:
    """Return the line of an arm that will have no result, however often it is run."""
    searched = found.phase == "search"
    told = _ends(found.ends, "search trials" if searched else "confirmations")
    more = ", so there is no configuration to confirm" if searched else ""
    retry = ", but with --retry-failed" if found.ends.failed else ""
    return (
        f"No result of {found.arm}: {told}{more}. Running it again changes nothing{retry}. "
        f"The first of them, {found.key}: {found.reason}."
    )


def _uncounted(table: Table) -> str:
    if not table.outdated:
        return ""
    return f"{sum(table.outdated.values())} recorded trials are not counted: {told(table.outdated)}."


def _environments(table: Table) -> str:
    """Return the line that says that trials were made in several environments, or nothing."""
    if not table.environments:
        return ""
    return f"Machines or versions differ, and with them the last bits of results: {told(table.environments)}."


def _sources(table: Table) -> str:
    """Return the line that says where the published numbers stand, or nothing if there are none."""
    numbers = [cell.published for cell in table.cells.values() if cell.published is not None]
    if not numbers:
        return ""
    line = f"Published: {'; '.join(dict.fromkeys(number.source for number in numbers))}."
    if any(number.spread is not None for number in numbers):
        line += " sd is the standard deviation over its n runs, not an interval."
    if any(number.split == "validation" for number in numbers):
        line += " Where it says validation, the paper scored that split, and not the test split as here."
    return line


def _settings(choice: Choice) -> str:
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in choice.values.items()
    )


def _markdown_table(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def to_markdown(table: Table) -> str:
    """Return the table as Markdown: per metric a row per loss, a column per regime (or model), and what was chosen."""
    parts = [f"# {table.study.name}", *_notes(table)]
    for metric in table.study.show:
        body = [[row, *(_markdown_cell(table, row, c, metric) for c in table.columns)] for row in table.rows]
        parts += [f"## {metric_title(metric)}", _markdown_table(["loss", *table.columns], body)]
    body = [
        [
            row,
            column,
            _settings(found),
            f"{100 * found.validation:.1f}",
            f"{found.trials}",
            f"{found.stopped}",
        ]
        for (row, column), found in table.choices.items()
    ]
    header = ["loss", table.across, "chosen on validation", "validation, %", "trials", "of these stopped"]
    if body or any(arm.searches for arm in table.study.arms):
        parts += ["## Configurations", _markdown_table(header, body)]
    if table.failures:
        parts += [
            "## Failed trials",
            "\n".join(f"- `{key}` {arm}: {why}" for key, arm, why in table.failures),
        ]
    return "\n\n".join(parts) + "\n"


def _markdown_cell(table: Table, row: str, column: str, metric: str) -> str:
    cell = table.cells.get((row, column, metric))
    if cell is None:
        return ""
    lines = []
    if runs := _missing(cell) or _count(cell):
        value = f"{_mean(cell)} {runs}"
        lines += [f"**{value}**" if cell.best else value, _difference(cell)]
    lines += [_published(cell.published)] if cell.published else []
    return "<br>".join(filter(None, lines))


def to_rich(table: Table) -> Group:
    """Return the table for a terminal: a block per metric, differences under the values."""
    striking = (_lost(table), *map(_fruitless, table.fruitless))
    below = [Text(line, style="yellow" if line in striking else "dim") for line in _notes(table)]
    return Group(*(_block(table, metric) for metric in table.study.show), *below)


def _block(table: Table, metric: str) -> RichTable:
    sound = [cell for place, cell in table.cells.items() if place[2] == metric and not cell.confirmed.lost]
    numbers = {cell.value.n for cell in sound if cell.value is not None}
    common = numbers.pop() if len(numbers) == 1 else None
    title = metric_title(metric) + (f" (n = {common})" if common else "")
    block = RichTable(title=title, title_justify="left", show_lines=True)
    block.add_column("loss")
    for column in table.columns:
        block.add_column(column.replace("-", " "), justify="right", overflow="fold")
    for row in table.rows:
        cells = (table.cells.get((row, column, metric)) for column in table.columns)
        block.add_row(row.replace("_", " "), *(_rich_cell(cell, common) for cell in cells))
    return block


def _rich_cell(cell: Cell | None, common: int | None) -> Text:
    if cell is None:
        return Text("–", style="dim")
    text = Text()
    missing = _missing(cell)
    if cell.value is not None or missing:
        count = "" if missing or (cell.value and cell.value.n == common) else _count(cell)
        value = " ".join(filter(None, (_mean(cell), count, "*" if cell.best else "")))
        text.append(_unbroken(value), style="bold" if cell.best else "")
        text.append(
            f" {missing}" if missing else "", style="yellow"
        )  # long: it may be broken between its words
    if cell.difference is not None:
        text.append(f"\n{_unbroken(_difference(cell))}")
    if cell.published is not None:
        lines = _published(cell.published).replace(
            " (", "\n("
        )  # side by side they would be the widest of all
        text.append(("\n" if text else "") + _unbroken(lines), style="dim")
    return text


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")
