"""A report in Markdown, with the contents of the HTML page except its plots."""

from __future__ import annotations

from collections.abc import Iterator

from topk_platform.reports.page.content import Content
from topk_platform.reports.plain_text import markdown_table
from topk_platform.reports.tables.classes import EXPLAINED, HEADER
from topk_platform.reports.tables.markdown import block_to_markdown
from topk_platform.reports.words import command

__all__ = ["lowered", "to_markdown"]

_FAILED = 200  # the most failed trials that are named


def to_markdown(text: Content) -> str:
    """Return a report in Markdown.

    Args:
        text: The contents.
    """
    return "\n\n".join(filter(None, _parts(text))) + "\n"


def _parts(content: Content) -> Iterator[str]:
    yield from (
        f"# {content.table.study.name}",
        content.table.study.description,
        content.budget,
        f"**Answer.** {content.answer}",
    )
    yield from (f"> {line}" for line in content.striking)
    yield "## Tables"
    yield "" if content.tables else "There are no numbers yet."
    for part in content.tables:
        yield from (f"### {part.title}", block_to_markdown(part.block), *part.notes)
    yield from content.notes[1:]  # the legend is below each table
    yield from _classes(content)
    for title, text in (
        ("Claims", content.claims),
        ("Tuning", content.tuning),
        ("Methods", content.methods),
    ):
        yield from (f"## {title}", lowered(text).strip()) if text else ()
    if failures := content.table.failures:
        yield "## Failed trials"
        yield "\n".join(f"- `{key}` {arm}: {why}" for key, arm, why in failures[:_FAILED])
        yield f"And {len(failures) - _FAILED} more." if len(failures) > _FAILED else ""
    page = command("report", content.table.study, given=content.table.given)
    yield f"Plots, and the trials behind every number: `{page}`, a page in HTML."


def _classes(content: Content) -> Iterator[str]:
    yield from ("## Results by class", EXPLAINED, content.unlisted) if content.classes else ()
    for part in content.classes:
        yield from (f"### {part.title}", markdown_table(HEADER, part.rows), part.note)


def lowered(markdown: str) -> str:
    r"""Return Markdown for a section: without its first heading, and with the other headings one level lower.

    Args:
        markdown: The text.

    Example:
        >>> lowered("# Claims\n\n## One\n\nIt is so.\n")
        '\n### One\n\nIt is so.\n'
    """
    body = markdown.split("\n", 1)[1] if markdown.startswith("# ") else markdown
    return "\n".join(f"#{line}" if line.startswith("## ") else line for line in body.split("\n"))
