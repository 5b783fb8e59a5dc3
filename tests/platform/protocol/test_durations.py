"""Expected times while another thread reads them, as those of a live view and of a driver's notes do."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from topk_platform.protocol import Durations


def test_they_can_be_read_in_the_midst_of_a_change() -> None:
    """Each line of a change is followed by a look, as by a thread that takes over there."""
    durations, seen = Durations(), list[float]()
    changes: set[CodeType] = {function.__code__ for function in (Durations.add, Durations.guess)}

    def look(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in changes:
            return None
        if event != "call":
            seen.append(durations.of("a"))
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        durations.guess({"a": 4.0})
        durations.add("a", 2.0)
        durations.add("a", 4.0)
    finally:
        sys.settrace(before)
    assert list(dict.fromkeys(seen)) == [0.0, 4.0, 2.0, 3.0]
