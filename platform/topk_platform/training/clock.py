"""How long an epoch's steps took, on a GPU without waiting for it."""

from __future__ import annotations

import time
from types import TracebackType

import torch

__all__ = ["Stopwatch"]


def _events() -> list[torch.cuda.Event]:
    return [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]


class Stopwatch:
    """A context that takes the time of what runs in it.

    Args:
        device: ``"cpu"`` or ``"cuda"``, where events on the stream are timed and read afterwards.
    """

    def __init__(self, device: str) -> None:
        self._events = _events() if device == "cuda" else None
        self._times = [0.0, 0.0]

    def __enter__(self) -> Stopwatch:
        self._mark(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mark(1)

    def _mark(self, place: int) -> None:
        if self._events is None:
            self._times[place] = time.perf_counter()
        else:
            self._events[place].record()

    @property
    def seconds(self) -> float:
        """The time; on a GPU, to be read once the device has been waited for."""
        if self._events is None:
            return self._times[1] - self._times[0]
        return float(self._events[0].elapsed_time(self._events[1])) / 1e3
