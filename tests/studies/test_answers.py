"""The studies of the page of answers are the ones that it tells of, and small."""

from __future__ import annotations

import runpy
from pathlib import Path

from topk_platform import Study

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_names_every_study_of_its_file() -> None:
    result = runpy.run_path(str(DOCS / "studies" / "answers.py")).items()
    studies = {name: value for name, value in result if isinstance(value, Study)}
    page = (DOCS / "answers.md").read_text()
    assert len(studies) == 5 == page.count("\n## ")
    for name, study in studies.items():
        assert study.name == name and f"`{name}`" in page and study.size <= 30
