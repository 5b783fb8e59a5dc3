"""A Ray of our own that does not start at the first try."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import ray

from topk_platform import Loss, Model, Recipe, Regime, Study, grid
from topk_platform.errors import ClusterError
from topk_platform.running.own_ray import starting
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
    monkeypatch.setattr(starting, "needed", dict)


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


@pytest.mark.parametrize(
    "given", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "~/.ray/auth_token", ""]
)
def test_it_has_a_token_of_this_process_unless_there_is_one_or_none_is_wanted(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if given.startswith("~"):
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray/auth_token").write_text("a token")
    elif given:
        monkeypatch.setenv(given, "disabled")
    tokens = [starting._token.__wrapped__() for _ in range(2)]
    assert tokens == [{}, {}] if given else tokens[0] != tokens[1]
    assert given or [len(token["RAY_AUTH_TOKEN"]) for token in tokens] == [64, 64]
    assert given.startswith("~") or not list(tmp_path.glob(".ray"))
