"""Interrupts that wait."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from topk_platform.running.own_ray import starting
from topk_platform.running.own_ray.interrupts import interrupts_wait
from topk_studies import digits

pytestmark = pytest.mark.usefixtures("heard")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_the_block_and_comes_then(number: signal.Signals) -> None:
    came: list[int] = []
    before = signal.signal(number, lambda number, _frame: came.append(number))
    try:
        with interrupts_wait():
            signal.raise_signal(number)
            assert not came
        assert came == [number]
        with interrupts_wait():
            pass
        assert came == [number]
    finally:
        signal.signal(number, before)


def test_what_the_block_raises_is_raised_in_place_of_the_interrupt() -> None:
    def work() -> None:
        with interrupts_wait():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        work()


def test_a_thread_that_is_never_interrupted_may_use_it() -> None:
    done: list[bool] = []

    def work() -> None:
        with interrupts_wait():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def test_a_sigterm_while_ray_starts_comes_after_it_and_is_not_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own handler would end the process with exit code 15, in the midst of the start and without a word."""
    came: list[int] = []

    def init(**_options: Any) -> None:
        signal.signal(signal.SIGTERM, lambda _number, _frame: pytest.fail("this is Ray's handler"))
        signal.raise_signal(signal.SIGTERM)
        assert not came

    monkeypatch.setattr(starting.ray, "init", init)
    before = signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))
    try:
        starting._start(digits(), 1, "ray")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]
