"""Faults of the machinery, which are never results: broken devices, refusing stores, epochs that take too long."""

from __future__ import annotations

import gc
import math
import platform
import re
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from topk_platform.errors import (
    BrokenDeviceError,
    FaultError,
    SharedMemoryError,
    StalledError,
    TimeLimitError,
    UnreachableStoreError,
    reason,
)

__all__ = ["FIRST_SECONDS", "Pace", "is_out_of_memory", "is_usable", "machinery_fault", "stored"]

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


_FACTOR = 20  # an epoch is too long if it takes this many times the usual time
_LEAST_SECONDS = 60.0
_LAST_EPOCHS = 20  # the usual time is the median of this many last epochs
FIRST_SECONDS = 3600.0
"""The seconds that may pass before there is a usual time, because the first epoch compiles and reads data."""


class Pace:
    """A watch on the time of one trial, or of an ensemble, in one process.

    Args:
        limit: The seconds that a trial may train in all.
        clock: A function that returns seconds, which never decrease.

    Example:
        >>> now = iter((0.0, 30.0, 31.0, 400.0))
        >>> pace = Pace(clock=lambda: next(now))
        >>> pace.patience
        3600.0
        >>> pace.end_epoch()  # after 30 s
        >>> pace.patience
        600.0
        >>> pace.check(epoch=2, spent=31.0)
    """

    def __init__(self, limit: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._seconds: deque[float] = deque(maxlen=_LAST_EPOCHS)
        self._began = clock()

    def end_epoch(self) -> None:
        """Record an epoch's end."""
        now = self._clock()
        self._seconds.append(now - self._began)
        self._began = now

    @property
    def patience(self) -> float:
        """The seconds that may pass between two heartbeats."""
        if not self._seconds:
            return FIRST_SECONDS
        return max(_LEAST_SECONDS, _FACTOR * statistics.median(self._seconds))

    def check(self, epoch: int, spent: float) -> None:
        """Raise a fault if an epoch or the whole trial takes too long.

        Args:
            epoch: The current epoch.
            spent: The seconds that the trial has trained, in earlier processes as well.

        Raises:
            StalledError: if the epoch takes many times as long as earlier ones in this process did.
            TimeLimitError: if the trial has trained for longer than it may.
        """
        if spent > self._limit:
            raise TimeLimitError(
                f"it has trained for {spent / 3600:.3g} h, time_limit is {self._limit / 3600:.3g} h"
            )
        if self._seconds and (taken := self._clock() - self._began) > self.patience:
            usual = statistics.median(self._seconds)
            raise StalledError(f"epoch {epoch} has taken {taken:.0f} s, the earlier ones {usual:.3g} s each")
