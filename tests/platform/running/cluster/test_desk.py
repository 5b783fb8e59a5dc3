"""What workers take from the desk, also where Ray repeats calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from topk_platform.running.cluster.desk import Trays


def done(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_a_worker_waits_for_what_is_put_down_for_it() -> None:
    async def work() -> list[Any]:
        trays = Trays()
        taking = [asyncio.create_task(trays.take(worker, 1, "process")) for worker in ("a", "b")]
        await asyncio.sleep(0)
        assert not any(task.done() for task in taking)
        await trays.put("b", 1, "for b")
        await trays.put("a", 1, None)
        return list(await asyncio.gather(*taking))

    assert done(work()) == [None, "for b"]


def test_a_repeated_put_hands_no_trial_out_again() -> None:
    """The answer to the first put was lost: Ray repeats it once the worker has taken the trial, or later."""

    async def work() -> list[Any]:
        trays = Trays()
        await trays.put("a", 1, "first")
        taken = [await trays.take("a", 1, "process")]
        await trays.put("a", 1, "first")
        await trays.put("a", 2, "second")
        taken.append(await trays.take("a", 2, "process"))
        await trays.put("a", 1, "first")
        await trays.put("a", 3, "third")
        return [*taken, await trays.take("a", 3, "process")]

    assert done(work()) == ["first", "second", "third"]


def test_a_repeated_take_gets_the_same_trial() -> None:
    async def work() -> list[Any]:
        trays = Trays()
        await trays.put("a", 1, "first")
        return [await trays.take("a", 1, "process") for _ in range(2)]

    assert done(work()) == ["first", "first"]


def test_a_worker_is_known_once_it_has_registered_or_takes_and_until_it_is_forgotten() -> None:
    async def work() -> list[Any]:
        trays = Trays()
        known = [await trays.process("a")]
        await trays.register("a", "process")
        known.append(await trays.process("a"))
        await trays.forget("a")
        await trays.put("a", 1, None)
        await trays.take("a", 1, "again")
        return [*known, await trays.process("a")]

    assert done(work()) == [None, "process", "again"]
