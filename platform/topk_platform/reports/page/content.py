"""The contents of a study's report, for HTML and for Markdown: answer, tables, claims, tuning, and methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from topk_platform.reports.answer import answer
from topk_platform.reports.decisions_text import claims_to_markdown
from topk_platform.reports.page.methods import methods
from topk_platform.reports.page.tuning import tuning
from topk_platform.reports.sections import Section
from topk_platform.reports.tables import legend
from topk_platform.reports.tables import notes as table_notes
from topk_platform.reports.tables.blocks import Block, blocks
from topk_platform.reports.tables.classes import class_parts
from topk_platform.reports.words import command
from topk_platform.results.by_class import class_results
from topk_platform.results.decisions import decided
from topk_platform.results.from_store import Held, main_metric
from topk_platform.results.table import Table
from topk_platform.specs import scale_of
from topk_platform.specs.checks import plural

__all__ = ["Content", "Part", "content_of"]

_WIDE, _LONG = 8, 24
_CLASS_ROWS = 300  # the most rows of a regime's results by class
_LISTED = 1000  # arms with trials and results by class in a page; more would be too large for a browser


@dataclass(frozen=True)
class Part:
    """A table of the report.

    Args:
        title: Its heading.
        block: Its rows and columns.
        notes: The lines below it.
    """

    title: str
    block: Block
    notes: Sequence[str]


@dataclass(frozen=True)
class Content:
    """The contents of a report.

    Args:
        table: The study's table.
        answer: The answer in words.
        striking: The notes that nobody should overlook.
        notes: All other notes, the table's legend first.
        tables: The tables that have numbers.
        claims: The verdicts on the claims, in Markdown; empty if the study has none.
        tuning: How the arms were tuned, in Markdown; empty if no arm was.
        methods: How the study was done, in Markdown.
        keys: The trials behind the numbers.
        classes: The results by class, a part for each column of the table.
        unlisted: Which arms have neither trials nor results by class here, in words; empty if all have.
    """

    table: Table
    answer: str
    striking: Sequence[str]
    notes: Sequence[str]
    tables: Sequence[Part]
    claims: str
    tuning: str
    methods: str
    keys: Sequence[Section]
    classes: Sequence[Section] = ()
    unlisted: str = ""

    @property
    def budget(self) -> str:
        """The arms, search trials and seeds in words."""
        study, count = self.table.study, len(self.table.study.arms)
        arms = plural(count, "arm")
        searched = (
            f"{plural(study.trials, 'search trial')} and "
            if any(arm.is_searched for arm in study.arms)
            else ""
        )
        baseline = f"; baseline {study.baseline}" if study.baseline else ""
        return f"{arms}; {searched}{plural(study.seeds, 'fresh seed')} per arm{baseline}."


def content_of(held: Held) -> Content:
    """Return the contents of a report on a study's results.

    Args:
        held: The results, with the epochs of the trials.
    """
    study, table = held.study, held.table
    striking, listed = table_notes.striking(table), _listed(table)
    return Content(
        table=table,
        answer=answer(table, main_metric(study)),
        striking=striking,
        notes=[note for note in table_notes.notes(table) if note not in striking],
        tables=_parts(table),
        claims=claims_to_markdown(study.name, decided(held)) if study.claims else "",
        tuning=tuning(held),
        methods=methods(held),
        keys=list(_keys(listed)),
        classes=class_parts(table, class_results(listed, held.ledger.store, held.ranks), _CLASS_ROWS),
        unlisted=_unlisted(listed, table),
    )


def _parts(table: Table) -> list[Part]:
    """Return a table's parts; those without a number are left out."""
    return [
        Part(title, block, [_below(block), *block.below])
        for title, block in _titled(table)
        if _has_numbers(block)
    ]


def _titled(table: Table) -> Iterable[tuple[str, Block]]:
    """Yield a table's parts with their titles; a long table of several models is split by model."""
    models = dict.fromkeys(arm.model.label for arm in table.study.arms)
    if len(table.rows) <= _LONG or table.across != "regime" or len(models) < 2:
        yield from ((block.title, block) for block in _blocks(table))
        return
    for model in models:
        rows = tuple(row for row in table.rows if row.startswith(f"{model}/"))
        filled = {column for row, column, _ in table.cells if row in rows}
        part = replace(table, rows=rows, columns=tuple(c for c in table.columns if c in filled))
        yield from ((f"{block.title}: {model}", block) for block in _blocks(part))


def _blocks(table: Table) -> Sequence[Block]:
    """Return a table's parts, with losses as columns if that makes them much narrower."""
    return blocks(table, transpose=len(table.columns) > max(_WIDE, len(table.rows)))


def _has_numbers(block: Block) -> bool:
    cells = (cell for line in block.cells for cell in line if cell is not None)
    return any(cell.value or cell.published for cell in cells)


def _below(block: Block) -> str:
    """Return the lines below a block. They are not a caption, because a caption would be as wide as the table."""
    n, comma, more = block.common.partition(", ")
    return f"{f'{n} seeds{comma}{more}. ' if n else ''}{legend.legend(block.table)}"


def _listed(table: Table) -> Table:
    """Return a table with the confirmations of as many arms as a page lists."""
    return replace(table, confirmations=dict(islice(table.confirmations.items(), _LISTED)))


def _unlisted(listed: Table, table: Table) -> str:
    shown, count = len(listed.confirmations), len(table.confirmations)
    study = table.study
    return (
        ""
        if shown == count
        else (
            f"This page has the results by class and the trials of the first {shown:,} of {count:,} arms; "
            f"`{command('table', study, '--by', 'class', '--format', 'csv', given=table.given)}` and "
            f"`{command('export', study, '--format', 'csv', '--to', f'{study.name}.csv', given=table.given)}` have all."
        )
    )


def _keys(table: Table) -> Iterable[Section]:
    header = ("seed", "ended", "key", *table.study.show)
    for key, rows in table.confirmations.items():
        if rows:
            yield Section(
                ", ".join(key), header, [_key_row(table, seed, rows[seed]) for seed in sorted(rows)]
            )


def _key_row(table: Table, seed: int, row: Mapping[str, object]) -> tuple[str, ...]:
    values = [(row[f"test.{metric}"], scale_of(metric)) for metric in table.study.show]
    scores = [f"{scale * value:.2f}" if isinstance(value, float) else "–" for value, scale in values]
    return str(seed), str(row["status"]), str(row["key"]), *scores
