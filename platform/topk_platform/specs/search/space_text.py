"""Search spaces as text: a range in a few words, and tables for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from topk_platform.specs.search.space import Choice, Dimension, Scalar

__all__ = ["html_table", "range_text", "space_rows"]


def range_text(dimension: Dimension) -> str:
    """Return a dimension's range in a few words.

    Args:
        dimension: The dimension.

    Example:
        >>> from topk_platform.specs import Float
        >>> range_text(Float(0.01, 10, log=True)), range_text(Choice((None, 10)))
        ('0.01 to 10, log', 'None, 10')
    """
    if isinstance(dimension, Choice):
        return ", ".join(map(str, dimension.options))
    return f"{dimension.low:g} to {dimension.high:g}{', log' if dimension.log else ''}"


def space_rows(
    space: Mapping[str, Dimension], first: Mapping[str, Scalar], fixed: Mapping[str, object]
) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the values and the first value of each parameter.

    Args:
        space: The dimensions that are searched.
        first: The values of the first trial.
        fixed: The parameters that are not searched.
    """
    for name, dimension in space.items():
        yield name, range_text(dimension), str(first.get(name, ""))
    for name, value in fixed.items():
        yield name, f"{value}, fixed", ""


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in HTML, with its cells escaped; empty if there are no rows."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    lines = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', header)}</thead>{lines}</table>" if lines else ""
