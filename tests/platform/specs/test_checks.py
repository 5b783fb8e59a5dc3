"""Paths and numbers as messages print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from topk_platform.records.storage.store import Store
from topk_platform.specs.checks import absolute, rounded


def test_a_path_has_no_steps_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert absolute("../runs") == tmp_path / "runs" and absolute("runs") == tmp_path / "work" / "runs"
    assert Store.open("../runs").local == tmp_path / "runs"
    assert Store.open(f"{tmp_path}/work/../runs").at("s").uri == f"{tmp_path}/runs/s"


def test_the_folder_above_a_link_is_that_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "far" / "target").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "target")
    assert absolute(tmp_path / "link" / ".." / "runs") == tmp_path / "far" / "runs"
    assert absolute(tmp_path / "link") == tmp_path / "link"


@pytest.mark.parametrize(("value", "text"), [(999.49, "999"), (999.5, "1000"), (-999.7, "-1000")])
def test_a_number_near_a_thousand_is_not_written_as_a_power_of_ten(value: float, text: str) -> None:
    assert rounded(value) == text
