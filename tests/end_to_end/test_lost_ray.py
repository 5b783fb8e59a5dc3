"""Ray's own processes on this machine are killed: the run ends with its own line, and the same command goes on."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labs import IN_PROC, check_undisturbed, rows, until

from topk_platform.cli.codes import Exit

pytestmark = [*IN_PROC, pytest.mark.slow]

KILLED = {"raylet": "raylet", "gcs_server": "GCS"}
ENDS_WITHIN = 120.0  # seconds, of which a tenth is the rule; other tests run beside this one


@pytest.fixture
def ray_root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        yield Path(folder)


def test_a_run_without_its_ray_ends_and_the_same_command_goes_on(
    lab: Any, reference: Any, ray_root: Path, tmp_path: Path
) -> None:
    command = ("run", "my_lab:study", "--workers", "2", "--checkpoints", "0", "--store", tmp_path)
    # Two trainings are held after the first is let on, and the two again after each kill.
    for round_, (program, description) in enumerate(KILLED.items()):
        lab.allow(1 + 2 * round_)
        held = len(lab.noted("held")) + 2
        process = lab.start(*command, RAY_TMPDIR=str(ray_root))
        until(lambda held=held: len(lab.noted("held")) == held, "two trainings are held", process)
        until(lambda: len(rows(tmp_path, "small")) == 1, "the first has ended", process)
        check_is_private(ray_root)
        os.kill(pid_of(lab, program), signal.SIGKILL)
        out, err = process.communicate(timeout=ENDS_WITHIN)
        assert process.returncode == Exit.OPEN, out + err
        said = " ".join((out + err).split())
        assert f"Ray's {description} (process " in said and "the same command goes on from here" in said
        assert "Traceback" not in said and "The program will terminate" not in said
        until(lambda: not lab.running(), "everything is gone")
    lab.allow(10**6)
    lab.topk(*command, RAY_TMPDIR=str(ray_root))
    check_undisturbed(tmp_path, reference)
    assert not list(ray_root.iterdir())


def check_is_private(root: Path) -> None:
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IRWXU
    assert list(folder.glob("*/session_*/logs/raylet.out"))


def pid_of(lab: Any, program: str) -> int:
    (result,) = (pid for pid, line in lab.running().items() if line.split()[0].endswith(f"/{program}"))
    return int(result)
