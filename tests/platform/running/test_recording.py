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


def a_recorder() -> tuple[Recorder, Callable[[str], None]]:
    writer: Any = SimpleNamespace(error=None, flush=lambda: None)
    recorder = Recorder(SimpleNamespace(store=None), writer)  # type: ignore[arg-type]
    return recorder, lambda key: writer.committed([SimpleNamespace(trial=SimpleNamespace(key=key))])


def test_a_checkpoint_that_a_store_kept_while_it_was_gone_is_deleted_with_the_next(there: set[str]) -> None:
    _, commit = a_recorder()
    there.add("gone")
    commit("a")
    assert there == {"a", "b", "c", "gone"}
    there.discard("gone")
    commit("b")
    assert there == {"c"}


@pytest.mark.parametrize(("error", "waits"), [(StoreError("full"), 1), (KeyboardInterrupt(), 0)])
def test_an_interrupt_while_tables_are_written_does_not_wait_for_mlflow(
    error: BaseException, waits: int, there: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "_write_tables", Mock(side_effect=error))
    recorder, _ = a_recorder()
    closed = list[Any]()
    recorder.feed = SimpleNamespace(close=lambda *seconds: closed.append(seconds))  # type: ignore[assignment]
    with pytest.raises(type(error)):
        recorder.close(None, lambda _: {})  # type: ignore[arg-type]
    assert len(closed) == waits
