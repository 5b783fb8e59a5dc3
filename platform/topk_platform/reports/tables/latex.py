"""A table in LaTeX with booktabs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.reports.tables.blocks import Block, blocks
from topk_platform.reports.tables.styled import caption, cell_lines, to_pandas
from topk_platform.reports.words import wrapped
from topk_platform.results.cells import Cell
from topk_platform.results.table import Table

__all__ = ["escaped", "to_latex"]

_ESCAPES = {
    **{letter: f"\\{letter}" for letter in "#$%&_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "▲": r"$\blacktriangle$",
    "▼": r"$\blacktriangledown$",
    "△": r"$\vartriangle$",
    "▽": r"$\triangledown$",
    "≈": r"$\approx$",
    "–": "--",
    "≤": r"$\le$",
    "<": r"$<$",
    ">": r"$>$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "|": r"\textbar{}",
    "\N{NO-BREAK SPACE}": "~",
    "\0": "{}",  # between hyphens, which would become a dash
}


def escaped(text: str) -> str:
    r"""Return text as LaTeX source that prints it; a hyphen before a number becomes a minus, unless it is in a word.

    Example:
        >>> print(escaped("top-5, %: 81.2 ± 0.4, -0.3; --searches 3"))
        top-5, \%: 81.2~$\pm$~0.4, $-$0.3; -{}-searches 3
    """
    apart = re.sub("-(?=-)", "-\0", text)
    written = "".join(_ESCAPES.get(letter, letter) for letter in apart)
    written = re.sub(r"(?<![\w)\]}-])-(?=\d)", "$-$", written)
    return re.sub(r" \$\\pm\$ ", r"~$\\pm$~", written)


def to_latex(table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> str:
    r"""Return a table in LaTeX, one ``table`` environment for each metric.

    It needs ``\usepackage{booktabs, amssymb}``. Losses have their titles instead of their identifiers. Long names are
    broken into lines between their words. The best mean of a regime is bold. The caption gives K, the numbers of trials
    and seeds, the number of test images if it is known, and the meaning of ± and of the marks.

    Args:
        table: The table.
        metrics: The metrics to show; by default the study's.
        transpose: Whether losses are columns.

    Raises:
        UserError: if a metric is not recorded.
    """
    head = "% \\usepackage{booktabs, amssymb}\n"
    return head + "\n".join(_environment(block) for block in blocks(table, metrics, transpose=transpose))


def _environment(block: Block) -> str:
    styled = to_pandas(block, _cell, lambda name: _name(_with_titles(block.table, name))).style
    label = f"tab:{block.table.study.name}-{block.metric}".replace("_", "-")
    text: str = styled.to_latex(
        hrules=True,
        column_format="l" + "r" * len(block.columns),
        caption=escaped(_with_titles(block.table, caption(block))),
        label=label,
        position_float="centering",
    )
    # The caption is above the table, because readers look for it there.
    return text.replace(
        "\\begin{tabular}", "\\footnotesize\\setlength{\\tabcolsep}{4pt}\n\\begin{tabular}", 1
    )


def _cell(cell: Cell | None, common: str) -> str:
    lines = [escaped(line) for line in cell_lines(cell, common)]
    first = [r"\textbf{" + line + "}" if cell is not None and cell.best else line for line in lines[:1]]
    return _stacked([*first, *(rf"\scriptsize {line}" for line in lines[1:])], "r")


def _stacked(lines: Sequence[str], side: str) -> str:
    if len(lines) < 2:
        return "".join(lines)
    body = r" \\ ".join(f"{{{line}}}" for line in lines)
    return rf"\begin{{tabular}}[t]{{@{{}}{side}@{{}}}}{body}\end{{tabular}}"


def _name(name: str) -> str:
    return _stacked([escaped(line) for line in wrapped(name).splitlines()], "l")


def _with_titles(table: Table, text: str) -> str:
    """Return a text with titles instead of the losses' identifiers.

    Args:
        table: The table, whose study says which labels are identifiers.
        text: The text, such as the table's caption.
    """
    titles = {loss: entry.title for loss, entry in LOSS_CATALOGUE.items()}
    labels = {arm.loss.label for arm in table.study.arms if arm.loss.label == arm.loss.name} & titles.keys()
    if not labels:
        return text
    # An identifier inside a longer name, such as a regime or another label, stays.
    names = rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(labels)))})(?![\w-])"
    return re.sub(names, lambda result: titles[result[0]], text)
