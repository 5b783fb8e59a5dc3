"""Extension points of the code that trials execute: parts that a recipe may name in place of the usual ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["extended"]

T = TypeVar("T")


def extended(usual: T, table: Mapping[str, Any], name: str) -> T:
    """Return the entry of a table that a recipe names, or ``usual`` if it names none.

    The code version of an arm that names no entry covers only ``usual``, as if there were no table. That of an arm that
    names an entry also covers this entry (:func:`~topk_platform.code_version.code_version`). So a new entry in a table
    does not change existing arms, and their results stay valid.

    Args:
        usual: The part for all arms that name no entry.
        table: The entries by name, a literal dictionary of a module.
        name: The entry's name; empty for ``usual``.

    Raises:
        KeyError: if the table has no such entry.

    Example:
        >>> extended("plain", {"bold": "heavy"}, ""), extended("plain", {"bold": "heavy"}, "bold")
        ('plain', 'heavy')
    """
    part: T = table[name] if name else usual
    return part
