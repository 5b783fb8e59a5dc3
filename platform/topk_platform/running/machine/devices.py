"""The GPUs of a machine as trials get them: whole ones, slices of MIG, and shares of either."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from contextlib import suppress

from topk_platform.errors import BrokenDeviceError, FaultError, SmallShareError
from topk_platform.specs import TrialRecord

__all__ = [
    "OWN_BYTES",
    "cap_memory",
    "gpu_count",
    "listed_devices",
    "memory_part",
    "outside_fault",
    "slices_here",
]

OWN_BYTES = 2**30
"""The memory of a GPU that a process holds beside its tensors: CUDA's context, kernels, libraries' workspaces."""

_ANSWER_SECONDS = 60
_LISTING = ["nvidia-smi", "-L"]  # the driver's program
_DEVICE = re.compile(r"^(GPU|\s+MIG) .*\(UUID: ([\w/-]+)\)", re.MULTILINE)
_NO_MEMORY = re.compile(r"out of memory|_ALLOC_FAILED", re.IGNORECASE)
_NO_MPS = re.compile(r"\bMPS (client|server)\b")


def memory_part(share: float, total: int) -> float:
    """Return the part of a GPU's memory that a trial's tensors may take.

    The rest of its share, :data:`OWN_BYTES`, is for the other memory of its process; it is half of the share if the
    share is smaller than twice that.

    Args:
        share: The trial's part of the GPU, in (0, 1].
        total: The GPU's bytes.

    Example:
        >>> memory_part(0.25, 80 * 2**30), memory_part(0.1, 8 * 2**30), memory_part(1.0, 8 * 2**30)
        (0.2375, 0.05, 1.0)
    """
    return 1.0 if share >= 1 else max(share - OWN_BYTES / total, share / 2)


def cap_memory(share: float) -> None:
    """Keep this process's tensors from taking more of the GPU's memory than a trial's share; 1 removes the limit.

    Args:
        share: The trial's part of the GPU, in (0, 1].
    """
    import torch  # noqa: PLC0415 - most of this module is used without torch

    total = torch.cuda.get_device_properties().total_memory
    torch.cuda.set_per_process_memory_fraction(memory_part(share, total))


def outside_fault(records: Iterable[TrialRecord], share: float) -> FaultError | None:
    """Return the fault that made trials fail on a GPU that they share; None if there is none.

    The share of a GPU is not a part of a trial's definition. So a trial that needs more memory than its share has no
    result yet: it may train with a larger share. An error of MPS is not a result either, because another client of MPS
    may have caused it.

    Args:
        records: The records of trials that trained together.
        share: Their part of the GPU, in (0, 1].
    """
    failed = [record for record in records if record.status == "failed" and record.trial.device == "cuda"]
    for record in failed:
        if _NO_MPS.search(record.reason):
            return BrokenDeviceError(record.reason)
        if share < 1 and _NO_MEMORY.search(record.reason):
            return SmallShareError(f"it takes more memory than {share:g} of a GPU: {record.reason}")
    return None


def listed_devices(text: str) -> list[str]:
    """Return the UUIDs of the devices that ``nvidia-smi -L`` lists; a GPU that is divided is listed by its slices.

    Example:
        >>> listed_devices('''GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6)
        ...   MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef)
        ...   MIG 3g.20gb     Device  1: (UUID: MIG-cba663e8)
        ... GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-09fb2a11)''')
        ['MIG-c6d4f1ef', 'MIG-cba663e8', 'GPU-09fb2a11']
    """
    devices: list[str] = []
    for kind, uuid in _DEVICE.findall(text):
        if kind.strip() == "MIG" and devices and devices[-1].startswith("GPU-"):
            devices.pop()
        devices.append(uuid)
    return devices


def slices_here(variable: str | None) -> list[str]:
    """Return this machine's usable devices if some are slices of MIG, of which a process can use one at a time.

    Args:
        variable: The value of ``CUDA_VISIBLE_DEVICES``; None if it is not set: then the driver lists the devices.

    Returns:
        Their UUIDs, as ``CUDA_VISIBLE_DEVICES`` takes them; empty if all devices are whole GPUs, which a process can
        use together, or the driver does not answer.

    Example:
        >>> slices_here("MIG-a, MIG-b"), slices_here("0,1")
        (['MIG-a', 'MIG-b'], [])
    """
    named = [] if variable is None else [name.strip() for name in variable.split(",")]
    if variable is None:
        with suppress(OSError, subprocess.SubprocessError):
            named = listed_devices(subprocess.check_output(_LISTING, text=True, timeout=_ANSWER_SECONDS))  # noqa: S603
    return named if any(name.startswith("MIG-") for name in named) else []


def gpu_count() -> int:
    """Return how many GPUs this machine has for trials, each slice of MIG counted as one."""
    import torch  # noqa: PLC0415 - as above

    return len(slices_here(os.environ.get("CUDA_VISIBLE_DEVICES"))) or torch.cuda.device_count()
