"""Tables of texts with titles, as Markdown and on the terminal: claims, tuning, and results by class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from topk_platform.reports.fitting import fitted, spare
from topk_platform.reports.plain_text import markdown_table

__all__ = ["Section", "to_markdown", "to_rich"]

_STYLES = {"confirmed": "green", "refuted": "red", "undecided": "yellow", "waits for data": "dim"}


@dataclass(frozen=True)
class Section:
    """A table of texts.

    Args:
        title: Its title.
        header: The names of its columns.
        rows: The texts of each row.
        note: A line about it; empty for none.
        numbers: The columns that are aligned to the right on the terminal.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    numbers: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        title = Text(self.title, style="bold")
        if self.note:
            title.append(f"\n{self.note}", style="not bold")
        table = Table(title=title, title_style="", title_justify="left")
        columns = self._columns(options.max_width)
        fits = spare(columns, options.max_width) >= 0  # otherwise words are broken where rich sees fit
        for name, width in zip(self.header, fitted(columns, options.max_width), strict=True):
            side: JustifyMethod = "right" if name in self.numbers else "left"
            table.add_column(name, width=width if fits else None, justify=side, overflow="fold")
        for row in zip(*(column[1:] for column in columns), strict=True):
            table.add_row(*row)
        yield table

    def _columns(self, width: int) -> list[tuple[Text, ...]]:
        """Return the texts of each column, its header first; where they do not fit, names may break after a slash."""

        def columns(slash: str) -> list[tuple[Text, ...]]:
            rows = ([_styled(text.replace("/", slash)) for text in row] for row in self.rows)
            return list(zip(map(Text, self.header), *rows, strict=True))

        whole = columns("/")
        return whole if spare(whole, width) >= 0 else columns("/ ")


def _styled(text: str) -> Text:
    return Text(text, style=_STYLES.get(text, ""))


def to_markdown(title: str, lines: Iterable[str], sections: Iterable[Section]) -> str:
    """Return sections as Markdown.

    Args:
        title: The title of all.
        lines: The paragraphs below it.
        sections: The sections.
    """
    parts = [f"# {title}", *lines]
    for one in sections:
        parts += [f"## {one.title}", one.note, markdown_table(one.header, one.rows)]
    return "\n\n".join(filter(None, parts)) + "\n"


def to_rich(lines: Iterable[str], sections: Iterable[Section]) -> Group:
    """Return sections for a terminal, with the lines below them; verdicts are coloured."""
    return Group(*sections, *(Text(line, style="dim") for line in lines))
