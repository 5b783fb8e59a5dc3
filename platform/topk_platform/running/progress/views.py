"""Progress for people: live in a terminal, or as occasional lines elsewhere."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from topk_platform.running.events import Event
from topk_platform.running.progress.rows import arm_line, arms_text, duration, headline, trials_text
from topk_platform.running.progress.watching import Repeating, Watch
from topk_platform.terminal import PlainConsole

__all__ = ["Lines", "LiveView", "View", "view_for"]

_LINE_SECONDS = 10.0
_REFRESHES = 2.0  # per second; each one costs the driver some milliseconds
_NEWS = 4  # how many of the last events are shown
_AROUND = 8  # lines beside the rows and the events: headline, bar, heads, rules, the line of the prompt
_BAR = 40


class View:
    """Shows a running study: a context manager that is called with every event. This one shows nothing.

    Views that show something put the context manager that does so into ``_shower``, and ``_is_for_people`` if they also
    print which recorded trials do not count.

    Args:
        console: Where to show it.
    """

    _is_for_people = False

    def __init__(self, console: Console) -> None:
        self.console, self._since = console, time.monotonic()
        self._watch: Watch | None = None
        self._shower: AbstractContextManager[object] = nullcontext()

    def __enter__(self) -> Self:
        self._shower.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._shower.__exit__(*error)

    def __call__(self, watch: Watch, event: Event) -> None:
        """Note an event, which another thread shows."""
        self._watch = watch
        if self._is_for_people and event.kind == "begun" and event.why:
            self.console.print(f"Trained again: {event.why}", highlight=False, markup=False)


class LiveView(View):
    """Shows one row per arm, the last events and the time left; it is redrawn twice a second."""

    _is_for_people = True

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._shower = Live(  # it calls get_renderable at once
            console=console,
            get_renderable=self.drawn,
            refresh_per_second=_REFRESHES,
            transient=True,
            vertical_overflow="crop",
        )

    def drawn(self) -> RenderableType:
        """Return what is shown now."""
        passed = duration(time.monotonic() - self._since)
        if self._watch is None:
            return Text(f"starting Ray ({passed})")
        state, width = self._watch.state(), self.console.width
        head = Text(f"{state.study}  {headline(state)}, {passed} passed", no_wrap=True, overflow="ellipsis")
        news = [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in state.events[-_NEWS:]]
        room = max(2, self.console.height - _AROUND - len(news))
        shown, done = min(len(state.training), room // 3), state.tally.ended
        bar = ProgressBar(total=max(1, done + (state.left or 0)), completed=done, width=min(_BAR, width))
        trials = (trials_text(state, shown), Text()) if shown else ()
        arms = arms_text(state, width, max(2, room - shown - bool(shown)))
        return Group(head, bar, Text(), arms, Text(), *trials, *news)


class Lines(View):
    """Prints a study's progress every ten seconds if it has changed; prints faults and finished arms at once.

    A failed trial is printed at once too. A separate thread checks the progress, because a worker seems free for the
    moment between two of its trials.
    """

    _is_for_people = True

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._last = ""
        self._looking = threading.Lock()  # otherwise an older line could follow a newer one
        self._shower = self._repeating = Repeating(_LINE_SECONDS, self.look)

    def __call__(self, watch: Watch, event: Event) -> None:
        """Take note of an event."""
        super().__call__(watch, event)
        failed = event.record is not None and event.record.status == "failed"
        fault = event.kind in ("again", "open", "cut") or failed
        if fault:
            self._print(watch.news)
        if event.record is not None and not watch.board.arms[event.record.trial.arm_id].left:
            self._print(arm_line(watch.arm(event.record.trial.arm_id)))
        if fault or event.kind == "begun":
            self.look()

    def look(self) -> None:
        """Print the progress if it has changed and anything is left."""
        if self._watch is None or not self._watch.board.left:
            return
        with self._looking:
            line = headline(self._watch.state())
            if line != self._last:
                self._last = line
                self._print(line)

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def view_for(shown: bool) -> View:
    """Return the view for a run started from Python; unless ``shown``, this view shows nothing."""
    console = PlainConsole(stderr=True)
    if console.is_jupyter:  # whose output takes text, but says that it is a terminal
        # Ray warns of missing widgets, which nothing here uses.
        logging.getLogger("ray.widgets").setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", message="IProgress not found")
        console = PlainConsole(stderr=True, force_jupyter=False, force_terminal=False)
    if not shown:
        return View(console)
    return (LiveView if console.is_terminal else Lines)(console)
