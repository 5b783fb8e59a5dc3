"""Kills aimed at confirmations: once their ranks are there, and once their record is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from labs import IN_PROC, check_undisturbed, until

from topk_platform.records.files import damaged_artifacts, missing_artifacts
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store

pytestmark = [*IN_PROC, pytest.mark.slow]

RUN = ("run", "my_lab:study", "--workers", "2", "--checkpoints", "0", "--store")


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def confirmed(store: Path) -> int:
    """Return how many confirmations are committed."""
    ledger = Ledger(Store.open(store).at("small"), "small")
    return len(ledger.rows("phase = 'confirm'")) if ledger.exists else 0


def ranked(store: Path) -> int:
    """Return how many confirmations have their ranks in the store."""
    return len(Store.open(store).at("small").names("ranks"))


def workers(lab: Any) -> list[int]:
    """Ray's workers, the desk's among them; without its agents, with which its raylet ends."""
    named = lab.running().items()
    return [pid for pid, name in named if name.startswith("ray::") and "Agent" not in name]


def everything(lab: Any) -> list[int]:
    return [*lab.running()]


@pytest.mark.parametrize("whom", [workers, everything])
def test_nothing_is_lost_by_kills_around_the_commit_of_a_confirmation(
    whom: Callable[[Any], list[int]], lab: Any, reference: Any, tmp_path: Path
) -> None:
    """As soon as the ranks of one are there, and as soon as another one is committed."""
    store = tmp_path / "store"
    process = lab.start(*RUN, store)
    for count in (ranked, confirmed):
        until(one_more(store, count), f"one more is {count.__name__}", process)
        kill(whom(lab))
        if whom is everything:
            process.communicate()
            until(lambda: not lab.running(), "everything is gone")
            process = lab.start(*RUN, store)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    check_undisturbed(store, reference)  # and so the same SHA-256 of every file
    rows = Ledger.open(Store.open(store), "small").rows("phase = 'confirm'")
    opened = Store.open(store).at("small")
    assert len(rows) == 4
    assert missing_artifacts(opened, rows) == damaged_artifacts(opened, rows) == []


def one_more(store: Path, count: Callable[[Path], int]) -> Callable[[], bool]:
    before = count(store)
    return lambda: count(store) > before
