"""The losses' names as a paper prints them, in place of the identifiers that studies use."""

from __future__ import annotations

import re

from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.results.table import Table, row_and_column

__all__ = ["row_titles", "with_titles"]


def row_titles(table: Table) -> dict[str, str]:
    """Return the title of each row whose loss has one: ``"mlp/focal"`` is ``"mlp/Focal loss"``.

    A loss that the study labels otherwise keeps its label, which says what is particular about it.

    Args:
        table: The table.
    """
    result: dict[str, str] = {}
    for arm in table.study.arms:
        if (title := _titled(arm.loss.name, arm.loss.label)) is not None:
            row, _ = row_and_column(table.study, table.across, arm)
            result[row] = row.removesuffix(arm.loss.label) + title
    return result


def with_titles(table: Table, text: str) -> str:
    """Return a text with titles in place of the losses' identifiers.

    Args:
        table: Its study says which labels are identifiers.
        text: Such as the table's caption.
    """
    known = {arm.loss.label for arm in table.study.arms if _titled(arm.loss.name, arm.loss.label) is not None}
    if not known:
        return text
    # Not within a longer name, such as that of a regime or of another label.
    names = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(map(re.escape, known)))})(?![\w-])")
    return names.sub(lambda result: LOSS_CATALOGUE[result[0]].title, text)


def _titled(name: str, label: str) -> str | None:
    entry = LOSS_CATALOGUE.get(name) if name == label else None
    return None if entry is None else entry.title
