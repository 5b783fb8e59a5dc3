"""A user whose home folder cannot be written to, as in many containers, has a Ray with a token all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from labs import rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_without_a_home_folder_a_study_runs_with_a_token(lab: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file, in which not even root can make a folder")
    command = ("run", "lab:plain", "--store", tmp_path / "runs", "--workers", "1")
    lab.topk(*command, HOME=str(home), RAY_AUTH_MODE="token")
    assert {row["status"] for row in rows(tmp_path / "runs")} == {"completed"} and home.is_file()
