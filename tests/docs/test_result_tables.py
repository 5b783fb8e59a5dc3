"""The pages of results say what the shipped findings say, and so does the README's table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scripts import loaded

from topk_studies import evidence

ROOT = Path(__file__).parents[2]
result_tables = loaded(ROOT / "tools" / "result_tables.py", "result_tables")
PAGES = sorted((ROOT / "docs" / "results").glob("*.md"))
ROWS = {"letters": "letters", "characters": "kanji", "photos": "photos"}
AGAIN = {f"{name}, asked again": kind for name, kind in ROWS.items()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_are_those_of_the_findings(page: Path) -> None:
    """Made anew by tools/result_tables.py where this fails."""
    assert result_tables.filled(page.read_text()) == page.read_text()


def test_the_readme_has_the_numbers_of_the_averages() -> None:
    table = (ROOT / "README.md").read_text().partition("| right label among five guesses |")[2]
    lines = [line.strip("| ").split(" | ") for line in table.split("\n\n")[0].splitlines()[2:]]
    assert {name for name, *_ in lines} == {*ROWS, *AGAIN}
    for name, *cells in lines:
        assert len(cells) == 2
        for noise, cell in zip((0.0, 0.8), cells, strict=True):
            kind = {**ROWS, **AGAIN}[name]
            selected = result_tables.selected(kind, "smooth_topk_svm", "top5", noise, name in AGAIN)
            result = result_tables.averages(selected)
            text = f"{result.mean:+.1f} ± {result.half_width:.1f}"
            assert cell == (f"**{text}**" if abs(result.mean) > result.half_width else text), name


def test_an_average_is_that_of_its_searches_by_a_way_of_its_own() -> None:
    """With one study: its searches' means over regimes, their variance at least the usual, Student's t, images."""
    loss, shares = "smooth_topk_svm", np.full(4, 1 / 4)
    cells = {"letters_map": result_tables.selected("letters", loss, "top5", 0.8)["letters_map"]}
    table = evidence("letters_map")[0].table
    losses = [row for row in table.rows if row != "cross_entropy"]
    rows = np.zeros((len(losses), 4, 5))
    images = []
    for number, count in enumerate((5, 15, 50, 150)):
        for index, name in enumerate(losses):
            cell = table.cells[name, f"noise-0.8-images-{count}", "top5"]
            for seed, value in cell.differences.items():
                rows[index, number, int(seed) // 1_000_000] += value / 2  # two seeds of each search
            if name == loss:
                images.append(cell.difference.precision.by_images**0.5)  # type: ignore[union-attr]
    own = rows[losses.index(loss)]
    usual = np.median(rows.var(2, ddof=1), 0)  # of each regime, over its losses
    searches = max(own.mean(0).var(ddof=1), (shares**2 * usual).sum()) / 5
    quantiles = (stats.t.ppf(0.975, 4), stats.t.ppf(0.975, 159))
    half = np.sqrt(sum(v * t**2 for v, t in zip((searches, np.mean(images) ** 2), quantiles, strict=True)))
    result = result_tables.averages(cells)
    assert result.mean == pytest.approx(100 * own.mean())
    # Degrees of freedom of images are rounded.
    assert result.half_width == pytest.approx(100 * half, rel=0.002)
    assert (result.rows, result.regimes) == (20, 4)
    assert result.ahead == int((own > 0).sum())


def test_a_row_each_study_is_student_s_interval_of_their_means() -> None:
    """Of five numbers that the page of letters has for noise 0.8, read from the cells."""
    cells = result_tables.selected("letters", "smooth_topk_svm", "top5", 0.8)
    means = np.array(
        [100 * np.mean([cell.difference.mean for cell in own.values()]) for own in cells.values()]
    )  # type: ignore[union-attr]
    result = result_tables.over_studies(cells)
    interval = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert result is not None and (result.rows, result.ahead) == (6, 6)
    ours = (result.mean - result.half_width, result.mean + result.half_width)
    assert ours == pytest.approx(tuple(interval))
    assert result_tables.over_studies(dict(list(cells.items())[:2])) is None


PROSE = {
    "4.6 ± 0.3": ("letters_memory", "smooth_topk_svm", "noise-0.8", "top5"),
    "8.3 ± 1.3": ("photos_tail", "balanced_softmax", "ratio-100", "macro_top5"),
    "1.6 ± 1.0": ("letters", "balanced_softmax", "long-tail", "top5"),
    "+1.4 ± 3.5": ("kanji", "balanced_softmax", "long-tail", "macro_top5"),
    "+2.2 ± 0.6": ("photos_noise", "topk_transition", "noise-0.8", "top5"),
    "+2.5 ± 0.8": ("photos_map", "topk_transition", "noise-0.8-images-450", "top5"),
    "-9.0 ± 2.8": ("letters_again_convnet", "smooth_topk_svm", "clean-images-5", "top1"),
    "+2.6 ± 2.8": ("letters_again_convnet", "smooth_topk_svm", "alike-images-5", "top5"),
    "+0.9 ± 1.5": ("letters_again_convnet", "smooth_topk_svm", "clean-images-5", "top5"),
}
"""The numbers in the sentences of what-holds, each with its study, loss, regime and metric."""


def test_every_number_of_the_sentences_on_what_holds_is_one_of_the_findings() -> None:
    text = (ROOT / "docs" / "results" / "what-holds.md").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    claims = {claim.name: e for e in evidence("letters_again")[0].decisions() for claim in [e.claim]}
    of_all = claims["smooth_topk_svm-ahead-with-labels-of-any-class"].evidence[0].estimate
    assert of_all is not None
    expected = {f"{100 * of_all.mean:+.1f} ± {100 * of_all.half_width:.1f}"}
    for number, (study, *key) in PROSE.items():
        difference = evidence(study)[0].table.cells[*key].difference
        assert difference is not None
        computed = f"{100 * difference.mean:+.1f} ± {100 * difference.half_width:.1f}"
        assert number in (computed, computed.removeprefix("+"))
        expected.add(number)
    assert set(re.findall(r"[+-]?\d+\.\d ± \d+\.\d", "\n".join(lines))) == expected


def test_the_page_of_letters_counts_the_searches_on_the_convnet() -> None:
    cell = evidence("letters_again_convnet")[0].table.cells["smooth_topk_svm", "alike-images-5", "top5"]
    searches = result_tables.rows_of(10, [cell])
    assert (int((searches > 0).sum()), searches.size) == (8, 10)
    assert (
        "In eight of ten searches the SVM is ahead" in (ROOT / "docs" / "results" / "letters.md").read_text()
    )


def test_every_table_of_the_pages_is_made() -> None:
    """No directive without its lines, and none that is misspelt."""
    for page in PAGES:
        text = page.read_text()
        assert len(re.findall("<!-- (?:cells|averages|claims) ", text)) == text.count("<!-- end -->")
        assert "-->\n<!-- end -->" not in text, page
