"""A Ray of our own that does not start at the first try."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import ray

from topk_platform import Loss, Model, Recipe, Regime, Study, grid
from topk_platform.errors import ClusterError
from topk_platform.running.own_ray.lifeline import Lifeline
from topk_platform.running.own_ray.starting import own_ray

ARMS = grid([Regime("r", "digits")], [Model("linear")], [Loss("cross_entropy")], k=3, recipe=Recipe(1))
STUDY = Study("s", ARMS, topk=(1, 3))


def failing(times: int, monkeypatch: pytest.MonkeyPatch, error: type[Exception] = Exception) -> list[str]:
    """Let Ray fail to start so many times, as on a busy machine; return the list of the folders of all tries."""
    folders: list[str] = []

    def init(*, _temp_dir: str, **_: Any) -> None:
        folders.append(_temp_dir)
        if len(folders) <= times:
            raise error("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", init)
    return folders


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_it_is_started_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    folders = failing(2, monkeypatch)
    with own_ray(STUDY, None) as line:
        assert isinstance(line, Lifeline)
    assert len(folders) == 3 and len(caplog.records) == 2


def test_after_three_tries_the_run_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = failing(3, monkeypatch)
    with pytest.raises(ClusterError, match=r"3 tries \(the machine .* busy.*timed out"), own_ray(STUDY, None):
        pytest.fail("nothing has started")
    assert len(folders) == 3
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "tries"), [(PermissionError, 1), (ModuleNotFoundError, 1), (ValueError, 2), (RuntimeError, 2)]
)
def test_only_what_may_pass_is_tried_again(
    error: type[Exception], tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray raises ValueError for a taken port and RuntimeError for a late answer, which the next try may not meet."""
    folders = failing(1, monkeypatch, error)
    if tries > 1:
        with own_ray(STUDY, None):
            pass
    else:
        with pytest.raises(ClusterError, match=r"^Ray cannot start: .*timed out"), own_ray(STUDY, None):
            pytest.fail("nothing has started")
    assert len(folders) == tries
    assert not any(tmp_path.iterdir())
