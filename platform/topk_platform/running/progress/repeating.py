"""A function that is called every few seconds while the driver works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

__all__ = ["Repeating"]


class Repeating:
    """Calls a function every few seconds in a thread of its own, for as long as the block lasts.

    Args:
        seconds: The pause before every call.
        act: The function.

    Attributes:
        over: Whether the block has ended.
    """

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._seconds, self._act = seconds, act
        self.over = threading.Event()
        self._thread = threading.Thread(target=self.go_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join()

    def go_on(self) -> None:
        """Call the function after each pause until the block has ended; the thread runs this method."""
        while not self.over.wait(self._seconds):
            self._act()
