"""How much memory and how many cores there are, in made-up folders of a system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topk_platform.errors import UserError
from topk_platform.running.machine.resources import available_memory, local_cpus

FREE = 5000 * 1024


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """The root folder of a system without limits."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal:       9000 kB\nMemAvailable:   5000 kB\nHugePages_Total:  0\n"
    )
    return tmp_path


def limit(system: Path, group: str, most: str, used: int = 3_000_000, inactive: int = 500_000) -> None:
    folder = system / "sys/fs/cgroup" / group
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1000000\ninactive_file {inactive}\n")


@pytest.mark.parametrize("reported", [None, "", "MemTotal: 9000 kB\n", "MemAvailable:\n"])
def test_a_system_that_does_not_report_its_memory_is_refused(reported: str | None, system: Path) -> None:
    meminfo = system / "proc/meminfo"
    meminfo.unlink() if reported is None else meminfo.write_text(reported)
    with pytest.raises(UserError, match="does not report its available memory"):
        available_memory(system)


@pytest.mark.parametrize(
    ("job", "step", "cores"),
    [
        ("max 100000", "max 100000", 64),
        ("400000 100000", "max 100000", 4),
        ("400000 100000", "250000 100000", 2),
        ("50000 100000", "max 100000", 1),  # a part of a core runs one trial
        ("9900000 100000", "max 100000", 64),
    ],
)
def test_a_containers_processor_time_limits_the_cores(
    job: str, step: str, cores: int, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(64))
    assert local_cpus(system) == 64
    (system / "proc/self/cgroup").write_text("0::/job/step\n")
    (system / "sys/fs/cgroup/job/step").mkdir(parents=True)
    (system / "sys/fs/cgroup/job/cpu.max").write_text(f"{job}\n")
    (system / "sys/fs/cgroup/job/step/cpu.max").write_text(f"{step}\n")
    assert local_cpus(system) == cores


def test_this_machine_has_memory() -> None:
    assert available_memory() > 2**20


@pytest.mark.parametrize(
    ("most", "result"), [("max", FREE), ("4000000", 1_500_000), ("90000000", FREE), ("100", 0)]
)
@pytest.mark.parametrize("own", [None, "0::/\n", "4:memory:/job\n0::/\n", "0::/not/visible/here\n"])
def test_a_containers_limit_is_that_of_the_topmost_group(
    own: str | None, most: str, result: int, system: Path
) -> None:
    if own is not None:
        (system / "proc/self/cgroup").write_text(own)
    assert available_memory(system) == FREE
    limit(system, "", most)
    assert available_memory(system) == result


@pytest.mark.parametrize(
    ("job", "step", "result"),
    [
        ("max", "max", FREE),
        ("max", "4000000", 1_500_000),
        ("4000000", "max", 1_500_000),
        ("4000000", "5000000", 1_500_000),
        ("5000000", "4000000", 1_500_000),
    ],
)
def test_the_tightest_limit_among_a_processes_group_and_those_above_counts(
    job: str, step: str, result: int, system: Path
) -> None:
    (system / "proc/self/cgroup").write_text("0::/system.slice/slurmstepd.scope/job_7/step_0\n")
    limit(system, "system.slice/slurmstepd.scope/job_7", job)
    limit(system, "system.slice/slurmstepd.scope/job_7/step_0", step)
    limit(system, "system.slice/slurmstepd.scope/job_8", "100")  # another job's
    assert available_memory(system) == result
