"""A table of texts, and what writes it: the terminal, Markdown, HTML and LaTeX; and rows as CSV."""

from __future__ import annotations

import csv
import html
import io
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = [
    "TextTable",
    "as_text",
    "html_table",
    "latex_source",
    "latex_table",
    "markdown_parts",
    "markdown_table",
    "rows_to_csv",
    "tables_as",
]

_STYLES = {"confirmed": "green", "refuted": "red", "undecided": "yellow", "waits for data": "dim"}


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    Args:
        title: Its title.
        header: The names of the columns.
        rows: The texts of each row.
        note: A line about it; empty for none.
        numbers: The columns whose texts are aligned to the right.
        best: The numbers of the rows whose first such text is emphasized.
        grouped: Whether the first column names groups of rows. The terminal and LaTeX write each name once.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    numbers: Collection[str] = ()
    best: Collection[int] = ()
    grouped: bool = False

    def groups(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the name of each group with the numbers of its rows; without groups, all rows and no name."""
        names = [row[0] if self.grouped else "" for row in self.rows]
        yield from ((name, list(rows)) for name, rows in groupby(range(len(names)), names.__getitem__))

    def emphasized(self, before: str, after: str) -> list[list[str]]:
        """Return the rows with these texts around each emphasized text."""
        result = [list(row) for row in self.rows]
        column = next((i for i, name in enumerate(self.header) if name in self.numbers), 0)
        for row in self.best:
            result[row][column] = f"{before}{result[row][column]}{after}"
        return result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield Text.assemble("\n", (self.title, "bold"), f"\n{self.note}" if self.note else "")
        first = int(self.grouped)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in self.header[first:]:
            right = name in self.numbers
            table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
        rows = self.emphasized("* ", "")
        for group, numbers in self.groups():
            if group:
                table.add_row(Text(group, "bold"))
            for number in numbers:
                name, *texts = rows[number][first:]
                cells = (
                    Text(text, _STYLES.get(text, "")) for text in (f"  {name}" if group else name, *texts)
                )
                table.add_row(*cells, style="bold" if number in self.best else "")
        yield table


def as_text(shown: RenderableType) -> str:
    r"""Return the text that a terminal would show, without colours.

    It is as wide as the terminal, or 120 letters if there is none.

    Example:
        >>> as_text("a line")
        'a line\n'
    """
    width = shutil.get_terminal_size((120, 24)).columns
    # In Jupyter mode, a notebook would show the captured output too, in colours.
    console = Console(file=io.StringIO(), force_jupyter=False, color_system=None, width=width)
    with console.capture() as written:
        console.print(shown)
    return written.get()


def rows_to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    r"""Return rows as CSV with a header; None is an empty cell.

    Args:
        columns: The names of the columns, in their order.
        rows: The values of each row by column. Values of other columns are left out.

    Example:
        >>> rows_to_csv(["arm", "n"], [{"arm": "clean", "n": 5, "why": ""}, {"arm": "noisy", "n": None}])
        'arm,n\nclean,5\nnoisy,\n'
    """
    # Python's writer is used because Arrow would import pandas to convert Python's values.
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    Args:
        header: The names of the columns.
        rows: The texts of each row.

    Example:
        >>> print(markdown_table(["arm", "n"], [["clean", "5"]]))
        | arm | n |
        | --- | --- |
        | clean | 5 |
    """
    # A text, such as the name of a class, must end neither its cell nor its row.
    cells = (
        [" ".join(text.splitlines()).replace("|", r"\|") for text in line]
        for line in (header, ["---"] * len(header), *rows)
    )
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def markdown_parts(tables: Iterable[TextTable], level: int = 2) -> Iterator[str]:
    """Yield the paragraphs of some tables in Markdown: each title, as a heading of this level, table and note."""
    for table in tables:
        yield f"{'#' * level} {table.title}"
        yield markdown_table(table.header, table.emphasized("**", "**"))
        yield from filter(None, [table.note])


def tables_as(output: str, title: str, line: str, tables: Sequence[TextTable]) -> str | Group:
    """Return tables with a line about all of them: in ``"md"`` below the title, in ``"rich"`` under the tables."""
    if output == "md":
        return "\n\n".join([f"# {title}", line, *markdown_parts(tables)]) + "\n"
    return Group(*tables, Text(line, "dim"))


def html_table(table: TextTable, caption: str = "") -> str:
    """Return a table as an element ``<table>``, without a style.

    Args:
        table: The table.
        caption: Its caption; empty for none.

    Example:
        >>> html_table(TextTable("", ["arm", "n"], [["a<b", "5"]], numbers=["n"])).splitlines()[1]
        '<tbody><tr><td>a&lt;b</td><td class="n">5</td></tr></tbody></table>'
    """
    sides = [' class="n"' if name in table.numbers else "" for name in table.header]

    def row(texts: Sequence[str], kind: str) -> str:
        cells = zip(sides, texts, strict=True)
        return f"<tr>{''.join(f'<{kind}{side}>{text}</{kind}>' for side, text in cells)}</tr>"

    escaped = replace(table, rows=[[html.escape(text) for text in line] for line in table.rows])
    body = "\n".join(row(line, "td") for line in escaped.emphasized("<b>", "</b>"))
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    head = row([html.escape(name) for name in table.header], "th")
    return f'<table class="topk">{above}<thead>{head}</thead>\n<tbody>{body}</tbody></table>'


_LATEX = {
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
    "\0": "{}",  # between hyphens, which would become a dash
}


def latex_source(text: str) -> str:
    r"""Return LaTeX that prints a text; a hyphen before a number becomes a minus, unless it is in a word.

    Example:
        >>> print(latex_source("top-5, %: 81.2 ± 0.4, -0.3; --searches 3"))
        top-5, \%: 81.2~$\pm$~0.4, $-$0.3; -{}-searches 3
    """
    apart = re.sub("-(?=-)", "-\0", text)
    written = "".join(_LATEX.get(letter, letter) for letter in apart)
    written = re.sub(r"(?<![\w)\]}-])-(?=\d)", "$-$", written)
    return re.sub(r" \$\\pm\$ ", r"~$\\pm$~", written)


def latex_table(table: TextTable, caption: str, label: str) -> str:
    r"""Return a table as an environment ``table``, which needs ``\usepackage{booktabs, amssymb}``.

    Args:
        table: The table.
        caption: The text above it, because readers look for it there.
        label: The name for ``\ref``.
    """
    first = int(table.grouped)
    escaped = replace(table, rows=[[latex_source(text) for text in line] for line in table.rows])
    rows, width = escaped.emphasized(r"\textbf{", "}"), len(table.header) - first
    body: list[str] = []
    for group, numbers in escaped.groups():
        body += ["\\addlinespace"] if body else []
        body += [f"\\multicolumn{{{width}}}{{l}}{{\\emph{{{group}}}}} \\\\"] if group else []
        body += [f"{' & '.join(rows[number][first:])} \\\\" for number in numbers]
    sides = "".join("r" if name in table.numbers else "l" for name in table.header[first:])
    head = " & ".join(map(latex_source, table.header[first:]))
    above = [f"\\caption{{{latex_source(caption)}}}", f"\\label{{{label}}}", "\\footnotesize"]
    lines = ["\\begin{table}", "\\centering", *above, f"\\begin{{tabular}}{{{sides}}}", "\\toprule"]
    lines += [f"{head} \\\\", "\\midrule", *body, "\\bottomrule", "\\end{tabular}", "\\end{table}"]
    return "\n".join(lines) + "\n"
