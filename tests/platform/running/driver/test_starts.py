"""What counts as waiting for a start: only the time for which there was room."""

from __future__ import annotations

from topk_platform.running.driver.starts import Starts


def looks(starts: Starts, moments: range) -> list[tuple[int, str]]:
    return [(now, worker) for now in moments for worker in starts.overdue(now)]


def test_the_first_workers_wait_where_there_is_room_for_some_only() -> None:
    starts = Starts(limit=80, room=lambda _waiting: 1)
    starts.add("a", 0)
    starts.add("b", 5)
    assert looks(starts, range(1, 81)) == [(80, "a")]
    starts.remove("a")
    assert looks(starts, range(81, 161)) == [(160, "b")]


def test_time_before_a_worker_was_asked_for_does_not_count() -> None:
    starts = Starts(limit=80, room=lambda waiting: waiting)
    starts.add("a", 0)
    starts.overdue(10)
    starts.add("b", 19)
    assert looks(starts, range(20, 91))[0] == (80, "a")
    starts.remove("a")
    assert looks(starts, range(91, 120))[0] == (100, "b")


def test_an_answer_that_is_awaited_is_asked_for_again_and_counts_from_the_last_look() -> None:
    answers = [None, None, 0, 1, None, 1]
    starts = Starts(limit=80, room=lambda _waiting: answers.pop(0))
    starts.add("a", 0)
    assert looks(starts, range(10, 13)) == []  # not known, not known, then none
    assert looks(starts, range(22, 23)) == []
    assert looks(starts, range(82, 93, 10)) == [(92, "a")] and answers == []


def test_without_a_limit_nobody_is_asked() -> None:
    starts = Starts()
    starts.room = None  # type: ignore[assignment]
    starts.add("a", 0)
    assert looks(starts, range(0, 10**7, 10**5)) == []
