"""What runs leave undone, as it is noted in the store."""

from __future__ import annotations

from pathlib import Path

from topk_platform.records.run_notes import OpenTrial, Unfinished
from topk_platform.records.storage.store import Store


def left(key: str, arm: str) -> OpenTrial:
    return OpenTrial(key, arm, "process lost: the node died", "buy another")


def test_it_comes_back_with_the_moment_when_it_was_noted_first(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    Unfinished().note(store)
    assert Unfinished.read(store) == Unfinished() and store.names() == []
    Unfinished((left("k", "a"),), "refused").note(store)
    result = Unfinished.read(store)
    assert (result.open[0].key, result.tracking) == ("k", "refused") and result.open[0].when.startswith("20")
    result.note(store)
    assert Unfinished.read(store) == result


def test_a_run_settles_what_it_tried_and_nothing_else() -> None:
    before = Unfinished((left("k", "a"), left("l", "b"), left("m", "c")), "refused")
    again = left("m", "c")
    result = before.after([again], settled=iter(["a", "c"]), tracking="")
    assert result == Unfinished((left("l", "b"), again))
    assert before.after([], settled=[], tracking="refused") == before  # a run that was cut off
