"""Extension points of what trials execute: parts that a recipe may name in place of the usual ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["extended"]

T = TypeVar("T")


def extended(usual: T, table: Mapping[str, Any], name: str) -> T:
    """Return the entry of a table that a recipe names, or what is usual if it names none.

    The identity of an arm that names none counts only ``usual``, as if it stood there alone. An arm that names an entry
    counts this entry besides (:func:`~topk_platform.code_version.code_version`). So a new entry starts no arm anew.

    Args:
        usual: What stands there for all arms that name nothing.
        table: The entries by name, a literal dictionary of a module.
        name: The entry's name; empty for what is usual.

    Example:
        >>> extended("plain", {"bold": "heavy"}, ""), extended("plain", {"bold": "heavy"}, "bold")
        ('plain', 'heavy')
    """
    part: T = table[name] if name else usual
    return part
