"""What of Weights & Biases is refused before a study starts."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from topk_platform.errors import UserError
from topk_platform.tracking.tracker import StudyResult, TrackedStudy
from topk_platform.tracking.wandb import WandbTracker


@pytest.mark.parametrize("mode", ["disabled", "dryrun", "off"])
def test_a_mode_in_which_nothing_would_be_kept_is_refused(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    with pytest.raises(
        UserError, match=f"WANDB_MODE must be online or offline for track wandb, got '{mode}'"
    ):
        WandbTracker().check(TrackedStudy("s", "", tmp_path))


def _used_wandb_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave wandb as an offline study of this process leaves it."""
    import wandb

    with monkeypatch.context() as earlier:
        earlier.setenv("WANDB_MODE", "offline")
        wandb.teardown()
        assert wandb.setup().settings.mode == "offline"


@pytest.mark.slow  # wandb takes seconds to import
def test_a_key_that_cannot_be_one_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "short")
    _used_wandb_offline(monkeypatch)
    with pytest.raises(UserError, match=r"^track wandb: .*API key must have 40\+ characters") as caught:
        WandbTracker().check(TrackedStudy("s", "", tmp_path))
    assert "\n" not in str(caught.value)
    sys.modules["wandb"].teardown()  # it remembers the key


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A stand-in for wandb with a server. A `wandb.Run` has no `delete`."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    wandb = MagicMock()
    wandb.init.return_value = MagicMock(spec=["finish", "log", "path", "summary"], path="lab/s/k1-0")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return wandb


def test_a_run_that_was_just_sent_can_be_removed(tmp_path: Path, server: MagicMock) -> None:
    """With --track-search best a search trial that is no longer the best."""
    tracker = WandbTracker()
    list(tracker.begin(TrackedStudy("s", "", tmp_path)))
    with tracker._run("k1-0", config={}):
        pass
    server.Api().run.assert_not_called()
    tracker.remove(["k1"])
    server.Api().run.assert_called_once_with("lab/s/k1-0")
    server.Api().run().delete.assert_called_once_with()


def test_a_run_that_could_not_be_sent_whole_does_not_stay(tmp_path: Path, server: MagicMock) -> None:
    """It would have finished on the server, and so count as complete."""
    tracker = WandbTracker()
    list(tracker.begin(TrackedStudy("s", "", tmp_path)))
    server.init().log.side_effect = ConnectionError("reset")
    with pytest.raises(ConnectionError), tracker._run("k1-0", config={}) as run:
        run.log({})
    server.Api().run.assert_called_once_with("lab/s/k1-0")
    server.Api().run().delete.assert_called_once_with()
    assert not tracker._runs


def test_results_that_come_back_have_a_new_id(tmp_path: Path, server: MagicMock) -> None:
    """As after an edit of a study that is taken back; a server refuses the id of a deleted run."""
    tracker = WandbTracker()
    list(tracker.begin(TrackedStudy("s", "", tmp_path)))
    for digest in ("a", "b", "a"):
        tracker.study_ended(StudyResult({"table.md": digest}, digest))
    assert len({call.kwargs["id"] for call in server.init.call_args_list}) == 3
    assert len(tracker._runs) == 1
