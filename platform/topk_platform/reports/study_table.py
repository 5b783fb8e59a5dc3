"""A study's table as Python users get it: it prints, and shows itself in a notebook and in other formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from topk_platform.records.ledger import nothing_of
from topk_platform.reports.result_tables import to_html, to_latex, to_markdown, to_rich
from topk_platform.reports.table_data import to_arrow
from topk_platform.reports.text_tables import as_text
from topk_platform.results.from_store import read
from topk_platform.results.table import Table
from topk_platform.specs import Study
from topk_platform.specs.fields import check_call

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Group

__all__ = ["StudyTable", "table"]


@dataclass(frozen=True, repr=False, eq=False)
class StudyTable(Table):
    """A study's table that shows itself; its fields are those of :class:`~topk_platform.results.table.Table`."""

    @classmethod
    def of(cls, results: Table) -> StudyTable:
        """Return a table with the means to show itself."""
        return cls(**vars(results))

    def to_pandas(self) -> DataFrame:
        """Return a pandas frame with a row for each metric of each cell; shares are fractions of 1."""
        frame: DataFrame = to_arrow(self).to_pandas()
        return frame

    def to_markdown(self, metrics: Sequence[str] = ()) -> str:
        """Return the table as Markdown, of these metrics or by default of the study's."""
        return to_markdown(self, metrics)

    def to_latex(self, metrics: Sequence[str] = ()) -> str:
        """Return the table in LaTeX with booktabs, of these metrics or by default of the study's."""
        return to_latex(self, metrics)

    def to_html(self, metrics: Sequence[str] = ()) -> str:
        """Return the table in HTML, of these metrics or by default of the study's."""
        return to_html(self, metrics)

    _repr_html_ = to_html

    def __rich__(self) -> Group:
        return to_rich(self)

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__


def table(study: Study, *, store: str | Path = "runs", only: str | Sequence[str] | None = None) -> StudyTable:
    """Return a study's table from the store's results; run nothing.

    A study with published numbers has a table of them even before anything ran.

    Args:
        study: The study.
        store: Folder or URI of the results.
        only: A glob over the names of the arms to show, ``regime/model/loss``, or several.

    Raises:
        UserError: if the store holds something else, or nothing of the study.
    """
    check_call(table, locals())
    held = read(study, store)
    shown = held.study.only(only) if only else held.study
    if not held.ledger.exists and not shown.published:
        raise nothing_of(store, study.name)
    return StudyTable.of(held.table_of(shown.arms))
