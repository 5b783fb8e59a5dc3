"""The studies of the page of answers are the ones that it tells of, and small."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from shipped import shipped

from topk_platform import Study
from topk_platform.reports.answer import answer
from topk_platform.results.from_store import main_metric

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_names_every_study_of_its_file() -> None:
    result = runpy.run_path(str(DOCS / "studies" / "answers.py")).items()
    studies = {name: value for name, value in result if isinstance(value, Study)}
    page = (DOCS / "answers.md").read_text()
    assert len(studies) == 5 == page.count("\n## ")
    for name, study in studies.items():
        assert study.name == name and f"`{name}`" in page and study.size <= 30


def test_the_page_of_reports_quotes_the_answer_of_findings_that_are_shipped() -> None:
    (result,) = [one for one in shipped() if one.study.name == "letters_tradeoff"]
    said = answer(result.table, main_metric(result.study))
    assert f'"{said}"' in " ".join((DOCS / "report.md").read_text().split())


@pytest.mark.parametrize("page", ["few-images.md", "related-work.md"])
def test_pages_quote_the_leads_with_few_images_and_wrong_labels_that_are_shipped(page: str) -> None:
    (result,) = [one for one in shipped() if one.study.name == "letters_searches"]
    text = (DOCS / page).read_text()
    for loss in ("smooth_topk_svm", "soft_topk_loss"):
        lead = result.table.cells[loss, "noise-0.8-images-5", "top5"].difference
        assert lead is not None and lead.low > 0
        assert f"{100 * lead.mean:.1f} ± {100 * lead.half_width:.1f}" in text
