"""How busy a trial's GPU is, as NVIDIA's driver tells the process that trains on it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["GpuSample", "sample_gpu"]


class GpuSample(NamedTuple):
    """One look at a GPU.

    Args:
        uuid: Which GPU.
        busy: The share of the driver's last sampling interval, at most a second, in which a kernel ran; in [0, 1].
        memory_used: Bytes in use, by whatever process.
        memory: Bytes it has.
    """

    uuid: str
    busy: float
    memory_used: int
    memory: int


class _Driver(Protocol):
    """What is asked of the driver's library, as Ray brings it."""

    def nvmlInit(self) -> object: ...  # noqa: N802 - the library's names
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object: ...  # noqa: N802
    def nvmlDeviceGetUtilizationRates(self, handle: object) -> _Rates: ...  # noqa: N802
    def nvmlDeviceGetMemoryInfo(self, handle: object) -> _Memory: ...  # noqa: N802


class _Rates(Protocol):
    gpu: int


class _Memory(Protocol):
    used: int
    total: int


_handles: dict[str, object] = {}


def sample_gpu(device: str) -> GpuSample | None:
    """Return a look at the GPU that this process trains on, in well under a millisecond.

    None on a CPU, before the training has touched the GPU, and where the driver does not say: for a slice of a GPU
    (MIG), or for another maker's.

    Args:
        device: The trial's, ``"cpu"`` or ``"cuda"``.
    """
    if device != "cuda":
        return None
    import torch  # noqa: PLC0415 - commands that only read load neither

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    try:
        from topk_platform.running.ray_internals import gpu_driver  # noqa: PLC0415 - Ray

        return _sampled(
            gpu_driver(), f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        )
    except Exception:  # noqa: BLE001 - whatever a driver lacks: the figure is for people, the training goes on
        return None


def _sampled(driver: _Driver, uuid: str) -> GpuSample:
    if uuid not in _handles:
        driver.nvmlInit()
        _handles[uuid] = driver.nvmlDeviceGetHandleByUUID(uuid)
    memory = driver.nvmlDeviceGetMemoryInfo(_handles[uuid])
    busy = driver.nvmlDeviceGetUtilizationRates(_handles[uuid]).gpu / 100
    return GpuSample(uuid, busy, memory.used, memory.total)
