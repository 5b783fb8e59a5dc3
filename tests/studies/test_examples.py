"""The worked pages: each file is short, is what its page shows, is planned, and trains as a smoke run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from made_photos import write_photos
from scripts import loaded
from small_trials import completed

from topk_platform.cli.studies import load_study
from topk_platform.data import data_at
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.testing import fake_run

DOCS = Path(__file__).parents[2] / "docs"
FILES = sorted((DOCS / "examples").glob("*.py"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(DOCS / "examples"), *sys.path])
    write_photos(tmp_path / "birds", "abcdefg", 12, (32, 32))
    np.savez(tmp_path / "table.npz", x=np.random.default_rng(0).normal(size=(60, 20)), y=np.arange(60) % 5)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_page_leads_to_the_file_which_is_short(file: Path) -> None:
    pages = [page.read_text() for page in DOCS.glob("*.md")]
    assert any(f"[{file.name}](examples/{file.name})" in page for page in pages)
    assert len(file.read_text().splitlines()) < 40


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_trains(file: Path, tmp_path: Path) -> None:
    """The first trial of each search and a confirmation of what it chose really train."""
    study = load_study(f"{file.stem}:study").smoke()
    searches = study.arms[0].protocol.searches
    small = study.with_budget(searches, searches)
    with data_at(tmp_path):
        ledger = fake_run(small, tmp_path / "runs", completed, identities=check_study(small))
    searching = sum(bool(arm.loss.space) for arm in small.arms)
    assert len(ledger.rows()) == searches * (len(small.arms) + searching)


own_loss = loaded(DOCS / "examples" / "own_loss.py", "own_loss")


class TestOwnLoss(own_loss.TestPoly1):  # type: ignore[misc]
    """The page's loss under the contract, whose promises it all makes."""
