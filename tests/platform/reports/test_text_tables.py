"""A table of texts in each format, letter by letter."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from topk_platform.reports.text_tables import (
    TextTable,
    html_table,
    latex_source,
    latex_table,
    markdown_parts,
    markdown_table,
)

ROWS = [
    ("clean", "cross_entropy", "94.7 ± 0.4", ""),
    ("clean", "ldam", "95.3 ± 0.4", "▲"),
    ("noise-0.4", "cross_entropy", "89.4 ± 0.5", ""),
]
TABLE = TextTable(
    "top-5, %", ("regime", "loss", "mean", "mark"), ROWS, "A note.", ("mean",), [1], grouped=True
)


def test_on_the_terminal_a_group_has_its_name_once() -> None:
    console = Console(width=80, color_system=None)
    with console.capture() as written:
        console.print(TABLE)
    assert [line.rstrip() for line in written.get().splitlines()] == [
        "",
        "top-5, %",
        "A note.",
        "loss                      mean   mark",
        "─────────────────────────────────────",
        "clean",
        "  cross_entropy     94.7 ± 0.4",
        "  ldam            * 95.3 ± 0.4   ▲",
        "noise-0.4",
        "  cross_entropy     89.4 ± 0.5",
    ]


def test_in_markdown_every_row_has_its_group() -> None:
    title, table, note = markdown_parts([TABLE])
    assert (title, note) == ("## top-5, %", "A note.")
    assert table.splitlines() == [
        "| regime | loss | mean | mark |",
        "| --- | --- | --- | --- |",
        "| clean | cross_entropy | 94.7 ± 0.4 |  |",
        "| clean | ldam | **95.3 ± 0.4** | ▲ |",
        "| noise-0.4 | cross_entropy | 89.4 ± 0.5 |  |",
    ]


def test_in_html_numbers_have_a_class_and_the_best_is_bold() -> None:
    assert html_table(TABLE, "a < b").splitlines() == [
        '<table class="topk"><caption>a &lt; b</caption><thead><tr><th>regime</th><th>loss</th>'
        '<th class="n">mean</th><th>mark</th></tr></thead>',
        '<tbody><tr><td>clean</td><td>cross_entropy</td><td class="n">94.7 ± 0.4</td><td></td></tr>',
        '<tr><td>clean</td><td>ldam</td><td class="n"><b>95.3 ± 0.4</b></td><td>▲</td></tr>',
        '<tr><td>noise-0.4</td><td>cross_entropy</td><td class="n">89.4 ± 0.5</td><td></td></tr></tbody></table>',
    ]


def test_in_latex_a_group_has_a_line() -> None:
    assert latex_table(TABLE, "5 %", "tab:t").splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{5 \%}",
        r"\label{tab:t}",
        r"\footnotesize",
        r"\begin{tabular}{lrl}",
        r"\toprule",
        r"loss & mean & mark \\",
        r"\midrule",
        r"\multicolumn{3}{l}{\emph{clean}} \\",
        r"cross\_entropy & 94.7~$\pm$~0.4 &  \\",
        r"ldam & \textbf{95.3~$\pm$~0.4} & $\blacktriangle$ \\",
        r"\addlinespace",
        r"\multicolumn{3}{l}{\emph{noise-0.4}} \\",
        r"cross\_entropy & 89.4~$\pm$~0.5 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_what_is_special_in_latex_is_escaped() -> None:
    assert latex_source("a & b, 5 % c_d # $ {x} ~ ^ \\ <") == (
        r"a \& b, 5 \% c\_d \# \$ \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} $<$"
    )
    assert latex_source("-0.3, noise-0.8 [-1.2], K-1, top-5") == "$-$0.3, noise-0.8 [$-$1.2], K-1, top-5"
    assert latex_source("--seeds 3, a|b, ---") == r"-{}-seeds 3, a\textbar{}b, -{}-{}-"


@given(
    st.lists(st.lists(st.text(alphabet="ab<&|%_\\{}#$~^\n", max_size=6), min_size=2, max_size=2), max_size=4)
)
def test_a_text_never_leaves_its_cell(rows: list[list[str]]) -> None:
    made = TextTable("", ("one", "two"), rows)
    assert html_table(made).count("<td>") == 2 * len(rows)
    latex = latex_table(made, "", "t").splitlines()
    lines = latex[latex.index("\\midrule") + 1 : latex.index("\\bottomrule")]
    assert sum(len(re.findall(r"(?<!\\)&", line)) for line in lines) == len(rows)


@pytest.mark.parametrize(("name", "cell"), [("a|b", "a|b"), ("|", "|"), ("two\nlines", "two lines")])
def test_a_name_stays_in_its_cell(name: str, cell: str) -> None:
    table = markdown_table(["class", "n"], [[name, "5"]])
    html = MarkdownIt("commonmark").enable("table").render(table)
    assert f"<td>{cell}</td>\n<td>5</td>" in html
