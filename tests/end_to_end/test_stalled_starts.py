"""A worker that Ray does not start although there is room for it: its trial is given to another."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from labs import rows
from ray.util import placement_group, remove_placement_group

from topk_platform.running.cluster.room import Room
from topk_platform.running.ray_internals import on_loopback

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

NEEDS = {"CPU": 1.0}
# The first process that is to be a worker hangs while it imports the worker's class.
HANGS = """
import os, sys, time

class First:
    def find_spec(self, name, path=None, target=None):
        if name == "topk_platform.running.cluster.worker" and "default_worker.py" in sys.argv[0]:
            try:
                os.close(os.open(os.environ["HUNG"], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return None
            time.sleep(10**6)

sys.meta_path.insert(0, First())
"""


@pytest.fixture
def one_core() -> Iterator[None]:
    with on_loopback():
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def answer(room: Room, waiting: int) -> int:
    while (count := room(waiting)) is None:
        time.sleep(0.1)
    return count


@pytest.mark.usefixtures("one_core")
def test_there_is_room_where_ray_has_reserved_it_or_runs_a_task_of_that_size() -> None:
    room = Room(NEEDS)
    groups = [placement_group([NEEDS]) for _ in range(3)]
    ray.get(groups[0].ready())  # the two others wait for its core
    assert answer(room, 3) == 1
    assert answer(room, 2) == 0
    for group in groups[1:]:
        remove_placement_group(group)
    assert answer(room, 1) == 1
    remove_placement_group(groups[0])
    while ray.available_resources().get("CPU") != 1:
        time.sleep(0.1)
    stuck = placement_group([{"CPU": 2.0}])  # of another driver
    assert answer(room, 2) == 2
    remove_placement_group(stuck)


def test_a_process_that_hangs_while_it_starts_costs_a_try(lab: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    out, err = lab.topk(
        *("run", "lab:slow_to_start", "--store", tmp_path / "store", "--workers", "1"),
        PYTHONPATH=paths,
        HUNG=str(tmp_path / "hung"),
    )
    said = " ".join((out + err).split())
    assert (tmp_path / "hung").exists() and re.search(r"tried again \d", said)
    assert {row["status"] for row in rows(tmp_path / "store")} == {"completed"}
