"""What becomes of a run whose Ray is gone: it hears of it, or is ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from topk_platform.cli.codes import Exit
from topk_platform.running.own_ray.lifeline import GONE_CODE, Lifeline, LostRayError
from topk_platform.running.own_ray.processes import end

SLEEP = "import time; time.sleep(600)"
MUTE = """
import sys, time, psutil
from topk_platform.running.own_ray import lifeline
lifeline._END_SECONDS = 0.2
processes = dict(zip(("raylet", "GCS"), [psutil.Process(int(pid)) for pid in sys.argv[1:]]))
with lifeline.Lifeline(processes, "/nowhere/of/this/name"):
    print(flush=True)
    time.sleep(600)
"""


@pytest.fixture
def started() -> Iterator[list[psutil.Popen]]:
    """Processes that stand for those of a Ray; the third has a folder's name in its command line."""
    commands = [[sys.executable, "-c", SLEEP, *more] for more in ([], [], ["--session-dir=/tmp/of-a-test/r"])]
    processes = [psutil.Popen(command) for command in commands]
    yield processes
    end(processes)


@pytest.mark.parametrize(("victim", "name"), [(0, "raylet"), (1, "GCS")])
def test_who_asks_gets_the_error_and_the_rest_is_ended(
    victim: int, name: str, started: list[psutil.Popen]
) -> None:
    processes = {"raylet": started[0], "GCS": started[1]}
    with Lifeline(processes, "/tmp/of-a-test") as line:
        line.check()
        started[victim].kill()
        with pytest.raises(LostRayError, match=rf"Ray's {name} \(process {started[victim].pid}\) on this"):
            line.sleep(600)
        assert line.headless == (name == "GCS")
        started[2].wait(60)
    assert started[1 - victim].status() != psutil.STATUS_ZOMBIE


def test_a_ray_that_somebody_else_started_is_never_gone() -> None:
    with Lifeline() as line:
        line.check()
        line.sleep(0)


@pytest.mark.parametrize("victim", [0, 1])
def test_who_does_not_ask_is_ended_with_a_line_and_the_code_of_a_fault(
    victim: int, started: list[psutil.Popen], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", MUTE, *(str(process.pid) for process in started[:2])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "\n"
        started[victim].kill()
        _, err = process.communicate(timeout=60)
    assert process.returncode == GONE_CODE == Exit.OPEN
    (line,) = err.splitlines()
    assert line.startswith("topk: Ray's ") and line.endswith("; the same command goes on from here")
