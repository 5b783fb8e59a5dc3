"""Views of a running study: text for people, events for programs, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from topk_platform.cli.consoles import print_json
from topk_platform.running.progress.events import Event
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
        for trial in event.trials or (None,):
            one = {} if trial is None else _trial(trial)
            print_json({**shown, **one, **_outcome(event)}, lines=True)


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
    """Return the view for a console: events or nothing if requested, else live in a terminal, and lines elsewhere."""
    if json or quiet:
        return (Events if json else View)(console)
    return (LiveView if console.is_terminal else Lines)(console)
