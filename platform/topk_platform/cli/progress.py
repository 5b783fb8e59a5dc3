"""A study's progress on the terminal, or as a line now and then in a log."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from topk_platform.identity import told
from topk_platform.search import Board
from topk_platform.specs import TrialRecord

__all__ = ["ProgressDisplay"]

_LINE_SECONDS = 10.0
_AGAIN = "tried again"


class ProgressDisplay:
    """Shows how many trials have ended; a context manager that is called with every record.

    Args:
        console: Where to show it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._counts: Counter[str] = Counter()
        self._told = False
        self._next_line = 0.0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting Ray", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, board: Board, record: TrialRecord | None) -> None:
        """Take note of an ended trial, or of a fault; before the first, tell which rows do not count."""
        if not self._told and board.left and (outdated := board.outdated):
            self._console.print(f"Recorded trials that do not count: {told(outdated)}.", highlight=False)
        self._told = True
        if record is not None:
            self._counts[record.trial.phase] += 1
            if record.status in ("failed", "diverged"):
                self._counts[record.status] += 1
        if board.again > self._counts[_AGAIN]:
            self._counts[_AGAIN] = board.again
            self._next_line = 0.0
        text = ", ".join(f"{name} {count}" for name, count in sorted(self._counts.items()) if count)
        text = text or "starting Ray"
        done = board.total - board.left
        self._bar.update(self._task, total=board.total, completed=done, description=text)
        if not self._console.is_terminal and board.left and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_SECONDS
            self._console.print(f"{done}/{board.total} trials: {text}")
