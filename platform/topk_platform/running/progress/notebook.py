"""A running study below the cell of a notebook: one output that is drawn anew, with no widget to install."""

from __future__ import annotations

import html
import logging
import warnings
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from topk_platform.running.progress.repeating import Repeating
from topk_platform.running.progress.rows import arms_text, headline, trials_text
from topk_platform.running.progress.views import ForPeople

__all__ = ["NotebookView"]

_SECONDS = 1.0
_WIDTH, _ROWS, _TRIALS, _NEWS = 110, 14, 6, 4
_PRE = '<pre style="line-height: 1.3; white-space: pre; overflow-x: auto">'


class _Standing:
    """How a study stands, in HTML where that is shown and as text elsewhere."""

    def __init__(self, head: str, done: int = 0, total: int = 0, lines: str = "") -> None:
        self.head, self.done, self.total, self.lines = head, done, total, lines

    def __repr__(self) -> str:
        return f"{self.head}\n{self.lines}".rstrip()

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.done}" max="{self.total}"></progress> ' if self.total else ""
        rows = f"{_PRE}{html.escape(self.lines)}</pre>" if self.lines else ""
        return f"<div>{bar}{html.escape(self.head)}</div>{rows}"


class NotebookView(ForPeople):
    """Shows how a study runs below the cell that runs it, and leaves there how it ended.

    It is drawn by a thread of its own, once a second and where something has changed, so that neither the driver waits
    for a browser nor a browser is sent every event.
    """

    def __init__(self) -> None:
        self._repeating = Repeating(_SECONDS, self._draw)
        super().__init__(Console(), self._repeating)
        self._handle: Any = None
        self._shown = ""

    def __enter__(self) -> Self:
        from IPython.display import display  # noqa: PLC0415 - for notebooks, which have it

        # Ray warns of missing widgets, which this view does not use.
        logging.getLogger("ray.widgets").setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", message="IProgress not found")
        self._handle = display(_Standing("starting Ray"), display_id=True)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._draw()

    def drawn(self) -> _Standing:
        """Return what is shown now."""
        if self._watch is None:
            return _Standing(f"starting Ray ({self._passed})")
        state = self._watch.state()
        done = state.tally.ended
        over = self._repeating.over.is_set()
        trials = ["", trials_text(state, _TRIALS).plain] if state.training and not over else []
        news = [] if over else ["", *state.events[-_NEWS:]]
        lines = "\n".join([arms_text(state, _WIDTH, _ROWS).plain, *trials, *news])
        head = f"{state.study}  {headline(state)}, {self._passed} passed"
        return _Standing(head, done, done + (state.left or 0), lines.rstrip())

    def _draw(self) -> None:
        now = self.drawn()
        if repr(now) != self._shown:
            self._shown = repr(now)
            self._handle.update(now)
