"""A running study on the terminal: a live view, or lines now and then in a log, or nothing, or events for programs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from topk_platform.cli.consoles import duration, print_json
from topk_platform.cli.rows import arm_line, arms_text, headline
from topk_platform.running.events import Event
from topk_platform.running.watching import Watch

__all__ = ["Events", "Lines", "LiveView", "View", "make_view"]

_LINE_SECONDS = 10.0
_REFRESHES = 2.0  # a second: each costs the driver some milliseconds
_NEWS = 4  # the last events that are shown
_AROUND = 8  # lines beside the rows and the events: headline, bar, heads, rules, the line of the prompt
_BAR = 40


class View:
    """Shows how a study runs: a context manager that hears every event. This one shows nothing.

    Args:
        console: Where to show it.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def __call__(self, watch: Watch, event: Event) -> None:
        """Take note of an event."""


class _ForPeople(View):
    def __call__(self, watch: Watch, event: Event) -> None:  # noqa: ARG002 - what is shown of it is others' affair
        """Take note of an event; at the begin, tell which recorded trials do not count and why."""
        if event.kind == "begun" and event.why:
            self.console.print(f"Trained again: {event.why}", highlight=False, markup=False)


class LiveView(_ForPeople):
    """Shows an arm a row, what happened last, and how much is left, drawn anew a few times a second."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._watch: Watch | None = None
        self._since = time.monotonic()
        self._live = Live(
            console=console,
            get_renderable=self.drawn,
            refresh_per_second=_REFRESHES,
            transient=True,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, watch: Watch, event: Event) -> None:
        """Take note of an event; drawing is left to the thread that does so in its own time."""
        super().__call__(watch, event)
        self._watch = watch

    def drawn(self) -> RenderableType:
        """Return what is shown now."""
        passed = duration(time.monotonic() - self._since)
        if self._watch is None:
            return Text(f"starting Ray ({passed})")
        state = self._watch.state()
        news = state.events[-_NEWS:]
        rows = max(2, self.console.height - _AROUND - len(news))
        width = self.console.width
        lines = [Text(line, no_wrap=True, overflow="ellipsis", style="dim") for line in news]
        done = state.tally.ended
        bar = ProgressBar(total=max(1, done + (state.left or 0)), completed=done, width=min(_BAR, width))
        head = Text(f"{state.study}  {headline(state)}, {passed} passed", no_wrap=True, overflow="ellipsis")
        return Group(head, bar, Text(), arms_text(state, width, rows), Text(), *lines)


class Lines(_ForPeople):
    """Prints how far a study is every ten seconds, and at once what went wrong and which arm is done."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._next = 0.0

    def __call__(self, watch: Watch, event: Event) -> None:
        """Take note of an event."""
        super().__call__(watch, event)
        failed = event.record is not None and event.record.status == "failed"
        if event.kind in ("again", "open", "cut") or failed:
            self._print(watch.news)
            self._next = 0.0
        if event.record is not None and not watch.board.arms[event.record.trial.arm_id].left:
            self._print(arm_line(watch.arm(event.record.trial.arm_id)))
        if event.kind != "started" and watch.board.left and time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_SECONDS
            self._print(headline(watch.state()))

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False)


class Events(View):
    """Prints every event as a line of JSON."""

    def __call__(self, watch: Watch, event: Event) -> None:
        """Print an event."""
        board = watch.board
        found: dict[str, Any] = {
            "event": event.kind,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        if event.kind == "begun":
            found |= {"study": watch.study, "workers": event.slots, "not_counted": dict(board.outdated)}
        found |= {"busy": event.workers, "total": board.total, "left": board.left}
        for trial in event.trials or (None,):
            one = {} if trial is None else _trial(trial)
            print_json({**found, **one, **_outcome(event)}, lines=True)


def _trial(trial: Any) -> dict[str, Any]:
    return {
        "key": trial.key,
        "arm": trial.arm.name,
        "phase": trial.phase,
        "number": trial.number,
        "seed": trial.seed,
        "values": trial.values,
    }


def _outcome(event: Event) -> dict[str, Any]:
    if event.record is None:
        return {"why": event.why} if event.why else {}
    record = event.record
    named = {"status": record.status, "reason": record.reason, "seconds": record.train_seconds}
    return {**named, "validation": record.validation, "test": record.test}


def make_view(console: Console, *, quiet: bool, json: bool) -> View:
    """Return the view for a console: live in a terminal, lines elsewhere."""
    if json or quiet:
        return (Events if json else View)(console)
    return (LiveView if console.is_terminal else Lines)(console)
