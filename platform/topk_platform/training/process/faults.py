"""Decisions whether an exception is a trial's own, and so its result, or a fault of the machinery."""

from __future__ import annotations

import gc
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from topk_platform.errors import (
    BrokenDeviceError,
    FaultError,
    SharedMemoryError,
    UnreachableStoreError,
    reason,
)

__all__ = ["is_out_of_memory", "is_usable", "machinery_fault", "stored"]

_OUT_OF_MEMORY = re.compile(
    # the wordings of torch's allocator, C++, oneDNN, the system, the loader, cuBLAS, cuDNN, CUDA and Triton
    r"can't allocate memory|bad_alloc|could not (create|execute) a |[Cc]annot allocate memory|failed to map segment"
    r"|_ALLOC_FAILED|CUDA error: out of memory|\[CUDA\]: out of memory"
)
_BROKEN = re.compile(
    r"uncorrectable ECC|[Hh]ardware error|busy or unavailable|GPU is lost|fallen off the bus|no CUDA-capable device"
    r"|CUDA driver initialization failed|system not yet initialized"
)
# A process alone on a GPU holds about this much besides torch's own memory: its context and libraries' workspaces.
_OWN_BYTES = 2**30


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory was used up, in any of the known wordings.

    Example:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("CUDA error: out of memory"))
        (True, True)
        >>> is_out_of_memory(RuntimeError("CUDA error: device-side assert triggered"))
        False
    """
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or bool(_OUT_OF_MEMORY.search(str(error)))


def machinery_fault(error: BaseException, device: str) -> FaultError | None:
    """Return the fault that an exception stands for, or None if it is the trial's own.

    If a GPU's memory is used up, it is the trial's own error if the trial had the GPU to itself, and a fault if other
    processes held more of it than a bare process does. The machine's memory has no such rule: when it is used up, the
    system kills a process.

    Args:
        error: The exception.
        device: The trial's device.
    """
    if device != "cuda":
        return None
    if _BROKEN.search(str(error)):
        return BrokenDeviceError(f"{reason(error)} (on {platform.node()})")
    if is_out_of_memory(error) and (others := _held_by_others()) > _OWN_BYTES:
        return SharedMemoryError(
            f"out of memory while other processes held {others / 2**30:.1f} GiB of the GPU (on {platform.node()})"
        )
    return None


def _held_by_others() -> int:
    """Return how many bytes of the GPU's memory are used by anything other than torch in this process."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def is_usable(device: str) -> bool:
    """Return whether a process can train another trial; some errors destroy a GPU's context.

    Effect: GPU memory that is no longer used is freed.
    """
    if device != "cuda" or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    gc.collect()
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True


@contextmanager
def stored(what: str) -> Iterator[None]:
    """Turn errors of the store in the block into faults.

    Args:
        what: What failed, for the message.

    Raises:
        UnreachableStoreError: instead of any other exception, except an interrupt or an exit.
    """
    try:
        yield
    except Exception as error:
        raise UnreachableStoreError(f"{what}: {reason(error)} (on {platform.node()})") from error
