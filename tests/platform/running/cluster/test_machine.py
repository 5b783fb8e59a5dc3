"""What a machine's GPUs are to trials, and what of their memory is whose; the GPUs are fakes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
from topk_platform.errors import BrokenDeviceError, SmallShareError
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress
from topk_platform.running.cluster import machine as devices
from topk_platform.running.cluster.machine import local_cpus, local_workers
from topk_platform.specs import Status, TrialRecord

GIB = 2**30

SLICES = ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"]
OLD = "MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/1/0"  # the name of a slice before driver 470


def a_study(**more: object) -> Study:
    arm = Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), 3, Recipe(1))
    return Study("s", [arm], topk=(1, 3), **more)  # type: ignore[arg-type]


def a_record(status: Status, reason: str, device: str = "cuda") -> TrialRecord:
    study = a_study(device=device)
    progress = ArmProgress(study, study.arms[0], Identity("code", "data"))
    slot = progress.next_slot()
    assert slot is not None
    return TrialRecord(progress.trial(slot), status, reason)


@pytest.mark.parametrize("gib", [4, 16, 40, 80, 141])
@pytest.mark.parametrize("trials", [2, 3, 4, 7, 20])
def test_trials_that_share_a_gpu_take_no_more_than_there_is(trials: int, gib: int) -> None:
    """Their tensors, and what their processes hold beside them where a share is large enough for both."""
    part = devices.memory_part(1 / trials, gib * GIB)
    assert 0 < trials * part < 1
    if gib >= 2 * trials:
        assert trials * (part * gib * GIB + devices.OWN_BYTES) <= gib * GIB * (1 + 1e-9)


def test_a_process_is_held_to_its_share_and_let_go_of_with_a_whole_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: Mock(total_memory=20 * GIB))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    for share in (0.5, 0.25, 1.0):
        devices.cap_memory(share)
    assert limits == [0.45, 0.2, 1.0]


MEMORY = "CUDA out of memory. Tried to allocate 20.00 MiB."


@pytest.mark.parametrize(
    ("ended", "share", "fault"),
    [
        (("failed", MEMORY), 0.5, SmallShareError),
        (
            ("failed", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
            0.5,
            SmallShareError,
        ),
        (("failed", MEMORY), 1.0, None),
        (("failed", "IndexError: index 5 is out of range"), 0.5, None),
        (
            ("failed", "CUDA error: the MPS client failed to connect to the MPS server"),
            1.0,
            BrokenDeviceError,
        ),
        (("failed", MEMORY, "cpu"), 0.25, None),
        (("diverged", MEMORY), 0.25, None),
    ],
)
def test_what_a_share_is_too_small_for_is_no_result(
    ended: tuple[Any, ...], share: float, fault: type[Exception] | None
) -> None:
    result = devices.outside_fault([a_record("completed", ""), a_record(*ended)], share)
    assert type(result) is (fault or type(None)) and (result is None or ended[1] in str(result))


@pytest.mark.parametrize(
    ("variable", "result"),
    [("", []), (f"{SLICES[1]}, {SLICES[0]}", SLICES[::-1]), (OLD, [OLD]), ("0,1", []), (None, [])],
)
def test_slices_are_counted_as_gpus_though_a_process_sees_one_of_them(
    variable: str | None, result: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("topk_platform.running.cluster.machine.local_cpus", lambda: 64)
    count = max(1, len(result))
    assert devices.slices_here() == result
    assert local_workers(a_study(device="cuda", gpus=0.5)) == 2 * count
    assert local_workers(a_study(device="cuda", gpus=0.6)) == count  # no trial spans two GPUs


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
