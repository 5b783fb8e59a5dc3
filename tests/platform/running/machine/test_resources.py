"""How many cores there are, in made-up folders of a system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topk_platform.running.machine.resources import local_cpus


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
    job: str, step: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(64))
    assert local_cpus(tmp_path) == 64
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job/step\n")
    (tmp_path / "sys/fs/cgroup/job/step").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/job/cpu.max").write_text(f"{job}\n")
    (tmp_path / "sys/fs/cgroup/job/step/cpu.max").write_text(f"{step}\n")
    assert local_cpus(tmp_path) == cores
