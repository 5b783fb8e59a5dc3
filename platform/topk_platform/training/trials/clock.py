"""A stopwatch for an epoch's steps, which does not wait for the GPU."""

from __future__ import annotations

import time
from types import TracebackType

import torch

__all__ = ["Stopwatch"]


def _events() -> list[torch.cuda.Event]:
    return [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]


class Stopwatch:
    """A context that measures the time spent in it, summed over all uses.

    Args:
        device: ``"cpu"`` or ``"cuda"``. On CUDA, events on the stream are timed and read afterwards.
        seconds: The time measured before.
    """

    def __init__(self, device: str, seconds: float = 0.0) -> None:
        self._on_gpu = device == "cuda"
        self._seconds = seconds
        self._start = 0.0
        self._pairs: list[list[torch.cuda.Event]] = []

    def __enter__(self) -> Stopwatch:
        if self._on_gpu:
            self._pairs.append(_events())
            self._pairs[-1][0].record()
        else:
            self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on_gpu:
            self._pairs[-1][1].record()
        else:
            self._seconds += time.perf_counter() - self._start

    @property
    def seconds(self) -> float:
        """The time. On a GPU, this waits until the device has done all work of the context."""
        for start, end in self._pairs:
            end.synchronize()
            self._seconds += float(start.elapsed_time(end)) / 1e3
        self._pairs.clear()
        return self._seconds
