"""How busy a trial's GPU is, with a stand-in for NVIDIA's library: no GPU is needed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from topk_platform.running.machine import gpu_use
from topk_platform.running.machine.gpu_use import GpuSample, sample_gpu


class _NVMLError(Exception):
    """As the library's."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The library of a machine with one GPU, which torch uses."""
    stand_in = SimpleNamespace(
        NVMLError=_NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID={"GPU-1-2": "handle"}.__getitem__,
        nvmlDeviceGetUtilizationRates={"handle": SimpleNamespace(gpu=87)}.__getitem__,
        nvmlDeviceGetMemoryInfo={"handle": SimpleNamespace(used=3, total=8)}.__getitem__,
    )
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="1-2"))
    gpu_use._handle.cache_clear()
    return stand_in


def test_the_sample_is_of_the_gpu_that_torch_uses(nvml: SimpleNamespace) -> None:
    assert sample_gpu("cuda") == sample_gpu("cuda") == GpuSample("GPU-1-2", 0.87, 3, 8)
    assert sample_gpu("cpu") is None


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUtilizationRates"])
def test_a_driver_that_does_not_answer_stops_nothing(nvml: SimpleNamespace, call: str) -> None:
    setattr(nvml, call, Mock(side_effect=_NVMLError("Not Supported")))
    assert sample_gpu("cuda") is None


def test_without_the_library_or_before_the_training_has_touched_the_gpu_there_is_no_sample(
    nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_initialized", lambda: False)
        assert sample_gpu("cuda") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)  # type: ignore[arg-type]
    assert sample_gpu("cuda") is None
