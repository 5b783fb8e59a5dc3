"""Views of a running study: text for people, events for programs, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from topk_platform.cli.consoles import print_json
from topk_platform.running.events import Event
from topk_platform.running.progress.views import Lines, LiveView, View
from topk_platform.running.progress.watching import Watch

__all__ = ["Events", "make_view"]


class Events(View):
    """A view that prints every event as a line of JSON."""

    def __call__(self, watch: Watch, event: Event) -> None:
        """Print an event."""
        board = watch.board
        shown: dict[str, Any] = {
            "event": event.kind,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        if event.kind == "begun":
            shown |= {"study": watch.study, "workers": event.slots, "not_counted": dict(board.outdated)}
        shown |= {"busy": event.workers, "total": board.total, "left": board.left}
        if event.record is not None:
            record = event.record
            shown |= {"status": record.status, "reason": record.reason, "seconds": record.train_seconds}
            shown |= {"validation": record.validation, "test": record.test}
        elif event.why:
            shown["why"] = event.why
        named = ("key", "phase", "number", "seed", "values")
        trials = [{"arm": t.arm.name, **{name: getattr(t, name) for name in named}} for t in event.trials]
        for trial in trials or [{}]:
            print_json({**shown, **trial}, lines=True)


def make_view(console: Console, *, quiet: bool, json: bool) -> View:
    """Return the view for a console: events or nothing if requested, else live in a terminal, and lines elsewhere."""
    if json or quiet:
        return (Events if json else View)(console)
    return (LiveView if console.is_terminal else Lines)(console)
