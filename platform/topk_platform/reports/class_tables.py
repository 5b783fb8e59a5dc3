"""Results by class as tables for people, as rows, and as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

from rich.console import Group
from rich.text import Text

from topk_platform.errors import UserError
from topk_platform.reports.table_data import arrow_table, parquet
from topk_platform.reports.text_tables import TextTable, markdown_parts, rows_to_csv
from topk_platform.reports.words import command
from topk_platform.results.by_class import ClassResult
from topk_platform.results.table import Table

__all__ = [
    "CLASSES",
    "CLASS_FORMATS",
    "EXPLAINED",
    "class_tables",
    "classes_as",
    "classes_to_files",
    "classes_to_rows",
]

CLASSES = "classes.parquet"
"""The name of the file with the results by class, in a study's ``tables`` folder."""

CLASS_FORMATS = ("rich", "md", "csv")
"""The formats of results by class."""

EXPLAINED = (
    "Top-1 and top-K accuracy over the test images of each class, as means over seeds; the hardest classes first. Most "
    "often taken for: the other class that is most often the first guess, with its share of the images."
)
"""What the columns mean."""

_HEADER = ("class", "loss", "images", "top-1, %", "top-K, %", "most often taken for")
_ON_TERMINAL = 30


def class_tables(table: Table, results: Iterable[ClassResult], most: int = 0) -> list[TextTable]:
    """Return results by class as tables of texts, one for each column of the study's table.

    Args:
        table: The table.
        results: Its results.
        most: The most rows of a table, 0 for no limit. A class is shown with all its rows or left out; at least one
            class is shown.
    """
    columns: dict[str, dict[int, list[ClassResult]]] = {}
    for result in results:
        columns.setdefault(result.column, {}).setdefault(result.label, []).append(result)
    return [_of_column(table, column, list(classes.values()), most) for column, classes in columns.items()]


def _of_column(table: Table, column: str, classes: Sequence[Sequence[ClassResult]], most: int) -> TextTable:
    hardest = sorted(classes, key=lambda losses: sum(result.topk for result in losses) / len(losses))
    shown = hardest[: max(most // max(map(len, classes)), 1)] if most else hardest
    hidden = len(classes) - len(shown)
    whole = command("table", table.study, "--by", "class", "--format", "csv", given=table.given)
    note = f"Easier classes that are left out: {hidden:,}; `{whole}` has all." if hidden else ""
    rows = [_texts(result) for losses in shown for result in losses]
    return TextTable(column, _HEADER, rows, note, numbers=_HEADER[2:5])


def _texts(result: ClassResult) -> tuple[str, ...]:
    other = f"{result.confused_name} ({100 * result.confused_share:.1f} %)" if result.confused_name else "–"
    accuracies = (f"{100 * result.top1:.1f}", f"{100 * result.topk:.1f}")
    return result.name, result.row, f"{result.images}", *accuracies, other


def classes_to_rows(table: Table, results: Iterable[ClassResult]) -> list[dict[str, Any]]:
    """Return results by class as rows, each a dictionary; shares are fractions of 1.

    Args:
        table: The table; the column ``regime`` is called ``model`` if the table's columns are models.
        results: The results.
    """
    return [dict(zip(_columns(table), astuple(result), strict=True)) for result in results]


def _columns(table: Table) -> Sequence[str]:
    numbers = ("class", "name", "images", "seeds", "k", "top1", "topk")
    return ("loss", table.across, *numbers, "confused_with", "confused_name", "confused_share")


def classes_to_files(table: Table, results: Iterable[ClassResult]) -> dict[str, bytes]:
    """Return the file ``classes.parquet`` of a study's ``tables`` folder by its name; without ranks it has no rows.

    Args:
        table: The table.
        results: The results.
    """
    return {CLASSES: parquet(arrow_table(_columns(table), classes_to_rows(table, results)))}


def classes_as(output: str, table: Table, results: Iterable[ClassResult]) -> object:
    """Return results by class in a format, as text or as an object that rich prints.

    Args:
        output: One of ``CLASS_FORMATS``.
        table: The table.
        results: The results.

    Raises:
        UserError: if there are no results.
    """
    if not (listed := list(results)):
        raise UserError(
            "there are no results by class: no confirmed run has kept the ranks of its test images"
        )
    if output == "csv":
        return rows_to_csv(_columns(table), classes_to_rows(table, listed))
    if output == "md":
        parts = [
            f"# {table.study.name}: results by class",
            EXPLAINED,
            *markdown_parts(class_tables(table, listed)),
        ]
        return "\n\n".join(parts) + "\n"
    return Group(*class_tables(table, listed, _ON_TERMINAL), Text(EXPLAINED, "dim"))
