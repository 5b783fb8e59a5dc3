"""How busy a trial's GPU is, with a driver's library of the test's own: no GPU is needed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray._private import thirdparty

from topk_platform.running.machine import gpu_use
from topk_platform.running.machine.gpu_use import GpuSample, sample_gpu


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """In place of NVIDIA's; it knows one GPU, which torch finds."""
    there = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID={"GPU-1-2": "handle"}.__getitem__,
        nvmlDeviceGetUtilizationRates={"handle": SimpleNamespace(gpu=87)}.__getitem__,
        nvmlDeviceGetMemoryInfo={"handle": SimpleNamespace(used=3, total=8)}.__getitem__,
    )
    monkeypatch.setitem(sys.modules, "ray._private.thirdparty.pynvml", there)  # type: ignore[arg-type]
    monkeypatch.setattr(thirdparty, "pynvml", there, raising=False)
    monkeypatch.setattr(gpu_use, "_handles", {})
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="1-2"))
    return there


def test_the_driver_is_asked_for_the_gpu_that_torch_uses(driver: SimpleNamespace) -> None:
    assert sample_gpu("cuda") == sample_gpu("cuda") == GpuSample("GPU-1-2", 0.87, 3, 8)
    assert sample_gpu("cpu") is None


def test_a_driver_that_does_not_say_stops_nothing(driver: SimpleNamespace) -> None:
    def refuse(_handle: Any) -> Any:
        raise RuntimeError("Not Supported")

    driver.nvmlDeviceGetUtilizationRates = refuse
    assert sample_gpu("cuda") is None


def test_before_the_training_has_touched_the_gpu_nothing_is_said(
    driver: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert sample_gpu("cuda") is None
