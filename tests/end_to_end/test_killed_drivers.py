"""A study killed at ten moments, its store damaged and taken to another machine, ends as if undisturbed."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from damage import spoil
from labs import IN_PROC, check_undisturbed, rows, tracked, until

from topk_platform.records.storage.lease import driven
from topk_platform.records.storage.opened import Opened
from topk_platform.records.storage.store import Store

pytestmark = [*IN_PROC, pytest.mark.slow]

KILLS = 10
# What befalls the store after some of the kills, by how many there were.
DAMAGE = {3: "truncated", 5: "empty", 7: "missing"}
TORN_CHECKPOINT, MOVED = 8, 9


@dataclass(frozen=True)
class Storm:
    """What was seen of the study.

    Args:
        store: Where its store was in the end.
        damaged: What `topk status` and `topk repair` said of each damaged part, by the kind of damage.
        driven: Who drove the study, as it is told after each kill.
        steps: How many training steps there were.
        repeated: How many steps trials took that were forgotten with a damaged part.
        torn: How many trials had a checkpoint when these were torn: those under way, and any that had ended and were
            not recorded yet.
    """

    store: Path
    damaged: dict[str, tuple[str, str]]
    driven: list[str]
    steps: int
    repeated: int
    torn: int


@pytest.fixture(scope="module")
def storm(make_lab: Callable[..., Any], reference: Any, tmp_path_factory: pytest.TempPathFactory) -> Storm:
    lab, store = make_lab(), tmp_path_factory.mktemp("storm") / "store"
    command = ("run", "my_lab:study", "--workers", "2", "--checkpoints", "0", "--store")
    damaged, drivers, repeated, torn = {}, [], 0, 0

    def cut_off(moment: int) -> None:
        moment = max(moment, len(lab.noted("steps")) + 1)
        lab.hold_at_step(moment)
        process = lab.start(*command, store)
        until(lambda: len(lab.noted("steps")) >= moment, f"step {moment}", process)
        process.kill()
        process.communicate()
        for pid in lab.running():  # its workers go on for some seconds else, and the moments were others
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not lab.running(), f"everything is gone after step {moment}")

    for kill, moment in enumerate(moments(reference.steps)):
        cut_off(moment)
        drivers.append(driven(Store.open(store).at("small")))
        if kind := DAMAGE.get(kill):
            before = rows(store, "small")
            spoil(newest_part(store, "trials"), kind)
            _, err = lab.topk("status", "--store", store, code=2)
            damaged[kind] = err, lab.topk("repair", "small", "--store", store)[0]
            left = {row["key"] for row in rows(store, "small")}
            repeated += sum(9 * row["epochs"] for row in before if row["key"] not in left)
        if kill == TORN_CHECKPOINT:
            torn = tear_checkpoint(store)
        if kill == MOVED:
            store = store.rename(store.with_name("moved"))
            leave_lease_elsewhere(store)
            drivers[-1] = driven(Store.open(store).at("small"))
    lab.hold_at_step(sys.maxsize)
    lab.topk(*command, store)
    return Storm(store, damaged, drivers, len(lab.noted("steps")), repeated, torn)


def moments(steps: int) -> Iterator[int]:
    """Yield the training steps, counted from the start of the study, after which it is killed: one in each tenth."""
    draw = random.Random(13)
    yield from (int(steps * (number + draw.random()) / KILLS) for number in range(KILLS))


def newest_part(store: Path, kind: str) -> Path:
    opened = Opened.of(Store.open(store).at("small"))
    result = [store / "small" / opened.folder / name for name in opened.parts if f"kind={kind}" in name]
    return max(result, key=lambda path: path.stat().st_mtime_ns)


def tear_checkpoint(store: Path) -> int:
    """Leave half of the newest checkpoint of each trial that has one; return how many there are."""
    folders = (store / "small" / "checkpoints").iterdir()
    newest = [max(result) for folder in folders if (result := list(folder.glob("*.ckpt")))]
    assert newest
    for path in newest:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return len(newest)


def leave_lease_elsewhere(store: Path) -> None:
    """Make the lease that the killed driver left one of a machine that is gone."""
    (lease,) = (store / "small" / "lease").glob("[0-9]*.json")
    holder = json.loads(lease.read_text())
    lease.write_text(json.dumps({**holder, "host": "far", "machine": "another boot"}))


def test_in_the_end_it_is_as_if_nothing_had_happened(storm: Storm, reference: Any) -> None:
    check_undisturbed(storm.store, reference)
    result = tracked(f"sqlite:///{storm.store / 'mlflow.db'}")
    assert len(result) == 16 and set(result.values()) == {1}


def test_of_a_trial_no_more_is_repeated_than_the_step_in_which_it_was_cut_off(
    storm: Storm, reference: Any
) -> None:
    """Of two trials at each kill; two steps of each whose last checkpoint was torn; and all of what was forgotten."""
    assert storm.steps <= reference.steps + 2 * KILLS + 2 * storm.torn + storm.repeated


@pytest.mark.parametrize("kind", DAMAGE.values())
def test_a_damaged_part_is_one_line_and_set_aside(kind: str, storm: Storm) -> None:
    warned, repaired = storm.damaged[kind]
    (line,) = warned.splitlines()
    assert "`topk repair small" in line
    assert "keeps what is sound, and the next run makes the rest again" in line
    assert repaired.startswith("missing: " if kind == "missing" else "set aside: ")


def test_it_is_reported_that_nobody_drives_it(storm: Storm) -> None:
    for kill, warned in enumerate(storm.driven):
        assert warned.endswith(" ended without releasing its lease") == (kill != MOVED)
    assert storm.driven[MOVED].startswith("driven by process ") and " on far, " in storm.driven[MOVED]
