"""What is deleted once a trial has ended; the store, the ledger and its writer are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from topk_platform.errors import StoreError
from topk_platform.running import recording
from topk_platform.running.recording import Recorder


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The checkpoints that are there, and ``gone`` for as long as the store is not."""
    there = {"a", "b", "c"}

    def forget(_store: object, keys: Iterable[str]) -> None:
        if "gone" in there:
            raise StoreError("nobody answers")
        there.difference_update(keys)

    monkeypatch.setattr(recording, "forget", forget)
    return there


def a_recorder(feed: Any = None) -> tuple[Recorder, Callable[[str], None]]:
    writer: Any = SimpleNamespace(error=None, flush=lambda: None)
    rows: Any = SimpleNamespace(ledger=SimpleNamespace(store=None))
    recorder = Recorder(rows, writer, feed)
    return recorder, lambda key: writer.committed([SimpleNamespace(trial=SimpleNamespace(key=key))])


def test_checkpoints_of_ended_trials_are_deleted_unless_the_store_is_gone(there: set[str]) -> None:
    _, commit = a_recorder()
    there.add("gone")
    commit("a")
    assert there == {"a", "b", "c", "gone"}  # the next run deletes it
    there.discard("gone")
    commit("b")
    assert there == {"a", "c"}


@pytest.mark.parametrize(("error", "waits"), [(StoreError("full"), 1), (KeyboardInterrupt(), 0)])
def test_an_interrupt_while_tables_are_written_does_not_wait_for_mlflow(
    error: BaseException, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "_write_tables", Mock(side_effect=error))
    feed = Mock()
    recorder, _ = a_recorder(feed)
    with pytest.raises(type(error)):
        recorder.close(None)  # type: ignore[arg-type]
    assert len(feed.close.mock_calls) == waits


def test_if_only_seconds_are_left_mlflow_gets_the_tables_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "_write_tables", Mock(return_value={"table.md": "# s"}))
    feed = Mock()
    recorder, _ = a_recorder(feed)
    assert recorder.close(None, at_once=True) is feed.close.return_value  # type: ignore[arg-type]
    feed.close.assert_called_once_with({"table.md": "# s"}, at_once=True)
