"""Kills aimed at what a run writes, chosen and at random, leave the same study as an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labs import IN_PROC, check_undisturbed, until

from topk_platform.records.files import damaged_artifacts, missing_artifacts
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.storage.store import Store

pytestmark = [*IN_PROC, pytest.mark.slow]

SEED = int(os.environ.get("BREAK_SEED", "29"))
KILLS = int(os.environ.get("BREAK_KILLS", "5"))
PER_STUDY = 5
# What a run writes, as patterns in the folder of its study.
TARGETS = {
    "commit": "ledger/_delta_log/*.json",
    "ranks": "ranks/*.parquet",
    "guesses": "guesses/*.parquet",
    "network": "models/*",
    "checkpoint": "checkpoints/*/*.ckpt",
    "lease": "lease/*",
}
VICTIMS = ("worker", "driver", "everything")


@dataclass(frozen=True)
class Kill:
    """One kill.

    Args:
        target: What has just been written when the kill comes.
        ordinal: How many such files appear first, counted from the start of this run.
        delay: Seconds between that and the kill.
        victim: Who is killed.
    """

    target: str
    ordinal: int
    delay: float
    victim: str


# Around the commit of a confirmation: as soon as its ranks are there, and a moment later.
AIMED = [
    Kill("ranks", 1, 0.0, "everything"),
    Kill("ranks", 1, 0.05, "everything"),
    Kill("ranks", 1, 0.0, "worker"),  # after which the run goes on by itself
]


def kills(seed: int) -> Iterator[Kill]:
    """Yield kills without end; half of them aim at commits and ranks."""
    rng = random.Random(seed)
    while True:
        target = rng.choice([*TARGETS, "commit", "ranks", "ranks"])
        yield Kill(target, rng.randint(1, 3), rng.uniform(0, 0.05), rng.choice(VICTIMS))


def strike(kill: Kill, lab: Any, process: Any) -> None:
    """Kill a worker, the driver, or everything; what has ended meanwhile is left alone."""
    running = lab.running()
    # Without its agents, which are processes of this name too, Ray itself ends, and the run with it: test_lost_ray.py.
    named = {pid: name for pid, name in running.items() if name.startswith("ray::")}
    workers = sorted(pid for pid, name in named.items() if "Agent" not in name)
    victims = {"worker": workers[:1], "driver": [process.pid], "everything": [process.pid, *running]}
    assert victims[kill.victim], (kill, running)
    for pid in victims[kill.victim]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def written(store: Path, kill: Kill) -> set[Path]:
    return set((store / "small").glob(TARGETS[kill.target]))


def run_and_kill(kill: Kill, lab: Any, store: Path) -> bool:
    """Run the study, with one kill; return whether it had ended before the kill came."""
    before = written(store, kill)
    process = lab.start("run", "my_lab:study", "--workers", "2", "--checkpoints", "0", "--store", store)
    while process.poll() is None and len(written(store, kill) - before) < kill.ordinal:
        time.sleep(0.002)
    time.sleep(kill.delay)
    ended = process.poll() is not None
    if not ended:
        strike(kill, lab, process)
    out, err = process.communicate()
    assert "Traceback" not in out + err, (kill, out + err)
    assert kill.victim != "worker" or process.returncode == 0, (kill, out + err)
    until(lambda: not lab.running(), f"everything is gone after {kill}")
    return ended


def check_ranks(store: Path, reference: Path) -> None:
    """Check that both stores hold the same ranks for every confirmation."""
    ours, theirs = (ranks_by_key(folder) for folder in (store, reference))
    assert ours.keys() == theirs.keys()
    for key, ranks in ours.items():
        assert all(np.array_equal(a, b) for a, b in zip(ranks, theirs[key], strict=True)), key


def ranks_by_key(store: Path) -> dict[str, Any]:
    ledger = Ledger.open(Store.open(store), "small")
    rows = ledger.rows("phase = 'confirm'")
    result = read_all_ranks(ledger.store, rows)
    assert missing_artifacts(ledger.store, rows) == damaged_artifacts(ledger.store, rows) == []
    assert sorted(result) == sorted(row["key"] for row in rows)
    return result


@pytest.mark.parametrize("aimed", [AIMED, pytest.param([], id="random", marks=pytest.mark.breaks)])
def test_kills_change_nothing(
    aimed: list[Kill], make_lab: Callable[..., Any], reference: Any, tmp_path: Path
) -> None:
    stream, left = iter(aimed) if aimed else kills(SEED), len(aimed) or KILLS
    while left:
        lab, store = make_lab(), tmp_path / f"store-{left}"
        for kill in (next(stream) for _ in range(min(PER_STUDY, left))):
            sys.stderr.write(f"seed {SEED}, {left} left: {kill}\n")
            left -= 1
            if run_and_kill(kill, lab, store):
                assert not aimed, f"the study ended before {kill}"
                break
        lab.topk("run", "my_lab:study", "--workers", "2", "--store", store)
        check_undisturbed(store, reference)
        check_ranks(store, reference.store)
