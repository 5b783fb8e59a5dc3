"""Ray's own processes are killed: the run ends with its own line, and the same command goes on."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labs import IN_PROC, check_undisturbed, until
from ray.cluster_utils import Cluster

from topk_platform.cli.consoles import Exit
from topk_platform.running.cluster.ray_internals import on_loopback

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
    environment = {"RAY_TMPDIR": str(ray_root)}
    # Two trainings are held after the first is let on, and the two again after each kill.
    for round_, (program, description) in enumerate(KILLED.items()):
        process = lab.start_held(1 + 2 * round_, tmp_path, "--workers", "2", **environment)
        check_is_private(ray_root)
        os.kill(pid_of(lab, program), signal.SIGKILL)
        out, err = process.communicate(timeout=ENDS_WITHIN)
        assert process.returncode == Exit.OPEN, out + err
        check_says(f"Ray's {description} at 127.0.0.1:", out + err)
        until(lambda: not lab.running(), "everything is gone")
    lab.allow(10**6)
    lab.topk("run", "my_lab:study", "--workers", "2", "--store", tmp_path, **environment)
    check_undisturbed(tmp_path, reference)
    assert not list(ray_root.iterdir())


@pytest.mark.parametrize("programs", [["gcs_server"], ["raylet"], ["gcs_server", "raylet"]])
def test_a_cluster_whose_head_is_killed_ends_a_run_in_the_same_way(
    programs: list[str], lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray alone would end the driver with its own line and code 1, a minute after its head, or let it wait for ever."""
    for name, value in {**lab.environment, "RAY_gcs_rpc_server_reconnect_timeout_s": "30"}.items():
        monkeypatch.setenv(name, value)
    with on_loopback():
        cluster = Cluster()
        node = cluster.add_node(num_cpus=2, include_dashboard=False)
        cluster.wait_for_nodes(timeout=600)
    try:
        process = lab.start_held(1, tmp_path, "--address", cluster.address)
        for program in programs:
            (started,) = node.all_processes[program]
            started.process.kill()
            started.process.wait()
        out, err = process.communicate(timeout=ENDS_WITHIN)
        assert process.returncode == Exit.OPEN, out + err
        check_says("Ray's ", out + err)
    finally:
        cluster.shutdown()


def check_says(text: str, output: str) -> None:
    said = " ".join(output.split())
    assert text in said and "the same command goes on from here" in said
    assert "Traceback" not in said and "The program will terminate" not in said


def check_is_private(root: Path) -> None:
    folders = [path for path in root.iterdir() if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {stat.S_IRWXU}
    assert sum(any(path.glob("*/session_*/logs/raylet.out")) for path in folders) == 1


def pid_of(lab: Any, program: str) -> int:
    (result,) = (pid for pid, line in lab.running().items() if line.split()[0].endswith(f"/{program}"))
    return int(result)
