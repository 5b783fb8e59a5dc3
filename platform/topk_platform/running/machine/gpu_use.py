"""The use of a trial's GPU, as NVIDIA's driver reports it to the process that trains on this GPU."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

__all__ = ["GpuSample", "sample_gpu"]


class GpuSample(NamedTuple):
    """The use of a GPU at one moment.

    Args:
        uuid: The GPU's UUID.
        busy: The share of the driver's last sampling interval, at most a second, in which a kernel ran; in [0, 1].
        memory_used: Bytes in use, by any process.
        memory: Bytes that the GPU has.
    """

    uuid: str
    busy: float
    memory_used: int
    memory: int


def sample_gpu(device: str) -> GpuSample | None:
    """Return the use of the GPU that this process trains on, in well under a millisecond.

    The result is None on a CPU, before the training has used the GPU, and if the driver does not report it, as for
    slices of a GPU (MIG) and for GPUs that are not NVIDIA's.

    Args:
        device: The trial's device, ``"cpu"`` or ``"cuda"``.
    """
    if device != "cuda":
        return None
    import torch  # noqa: PLC0415 - reading commands import this module's GpuSample and load neither library

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    try:
        import pynvml  # noqa: PLC0415 - as above
    except ImportError:  # on a node that was set up by hand; the figure is only shown to people
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    try:
        gpu = _handle(uuid)
        memory, rates = pynvml.nvmlDeviceGetMemoryInfo(gpu), pynvml.nvmlDeviceGetUtilizationRates(gpu)
    except pynvml.NVMLError:  # no driver of NVIDIA's, or a slice, whose use it does not report
        return None
    return GpuSample(uuid, rates.gpu / 100, memory.used, memory.total)


@cache  # starting NVIDIA's library takes longer than asking it
def _handle(uuid: str) -> object:
    import pynvml  # noqa: PLC0415 - as above

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)
