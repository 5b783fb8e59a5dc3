"""Texts in tables of Markdown."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from topk_platform.reports.plain_text import markdown_table


@pytest.mark.parametrize(("name", "cell"), [("a|b", "a|b"), ("|", "|"), ("two\nlines", "two lines")])
def test_a_name_stays_in_its_cell(name: str, cell: str) -> None:
    table = markdown_table(["class", "n"], [[name, "5"]])
    html = MarkdownIt("commonmark").enable("table").render(table)
    assert f"<td>{cell}</td>\n<td>5</td>" in html
