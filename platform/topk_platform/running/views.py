"""A study's progress as text, and the views that show it while it runs."""

from __future__ import annotations

import dataclasses
import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from topk_platform.records.states import ArmState, StudyState
from topk_platform.running.watching import Event, OnEvent, Watch, value_in_words, values_in_words
from topk_platform.terminal import PlainConsole

__all__ = ["arms_text", "duration", "headline", "own_console", "progress_text", "trials_text", "view_on"]

_STYLES = {"running": "cyan", "pruned": "yellow", **dict.fromkeys(("diverged", "failed", "lost"), "red")}
_GAP = "  "
_LINE_SECONDS = 10.0
_REFRESHES = 2.0  # per second; each one costs the driver some milliseconds
_AROUND = 6  # the other lines: headline, bar, an empty one, two rows of heads, the line of the prompt
_BAR = 40


def headline(state: StudyState) -> str:
    """Return a whole study's progress in one line."""
    whole = state.whole
    parts = [f"{count} {name}" for name, count in _counts(whole).items() if count]
    parts += [f"tried again {state.retries}"] if state.retries else []
    parts += [f"{state.workers} of {state.slots} workers busy"] if state.slots else []
    if whole.left and state.seconds and state.seconds >= 1:
        parts.append(f"about {duration(state.seconds)} left")
    return f"{_done(whole)} trials: {', '.join(parts) or 'nothing has ended yet'}"


def _arm_line(arm: ArmState) -> str:
    """Return an arm's progress in one line."""
    cells = [f"{column} {cell}" for column, cell in _cells(arm).items() if cell]
    return ", ".join(cells).removeprefix("arm ")


def _done(arm: ArmState) -> str:
    return f"{arm.done}" if arm.total is None else f"{arm.done}/{arm.total}"


def _counts(arm: ArmState) -> dict[str, int]:
    """Return how many trials ended with each status, and how many are lost or run."""
    return {**dataclasses.asdict(arm.tally), "lost": arm.lost, "running": arm.running}


def progress_text(state: StudyState, lines: int | None = None) -> Group:
    """Return a study's arms, its running trials and its last events, one line each.

    Args:
        state: The study's progress.
        lines: How many lines there are; by default every arm has one.
    """
    news = [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in state.events]
    most = None if lines is None else max(2, lines - len(state.training) - len(news))
    arms = [arms_text(state, most)] if state.arms else []
    return Group(*arms, *([trials_text(state)] if state.training else []), *news)


def arms_text(state: StudyState, most: int | None = None) -> Text:
    """Return one row per arm, one line each, under a header line; the console cuts off what does not fit.

    The text is built by hand: a rich table takes the driver seven times as long, 29 ms for 40 arms in place of 4 ms,
    and this is drawn twice a second while it works.

    Args:
        state: The study's progress.
        most: The most rows; the last one then sums up the arms without a row. Running arms get rows first.
    """
    arms = list(state.arms)
    if most is not None and len(arms) > most:
        by_interest = sorted(
            arms, key=lambda a: (not a.running, not a.lost, a.left == 0 or not a.done, a.left == 0)
        )
        rest = by_interest[most - 1 :]
        summed = set(map(id, rest))
        arms = [arm for arm in arms if id(arm) not in summed]
        arms.append(ArmState.together(f"and {len(rest)} more", rest))
    return _laid_out([_cells(arm) for arm in arms])


def trials_text(state: StudyState) -> Text:
    """Return one line for each running trial: its epoch and its last validation value."""
    rows = [
        {
            "trial": trial.trial,
            "running": f"epoch {trial.epoch}/{trial.epochs}",
            "last validation": value_in_words(trial.value, trial.metric),
        }
        for trial in state.training
    ]
    return _laid_out(rows)


def _laid_out(cells: Sequence[Mapping[str, str]]) -> Text:
    """Return rows of cells under a header, in the columns that are not empty; the outer ones align left."""
    names = [name for name in cells[0] if any(row[name] for row in cells)]
    rows = [dict(zip(names, names, strict=True)), *cells]
    widths = {name: max(cell_len(row[name]) for row in rows) for name in names}
    parts: list[tuple[str, str]] = []
    for number, row in enumerate(rows):
        for name in names:
            pad = " " * (widths[name] - cell_len(row[name]))
            text = f"{row[name]}{pad}" if name in (names[0], names[-1]) else f"{pad}{row[name]}"
            parts.append(
                (text + (_GAP if name != names[-1] else ""), _STYLES.get(name, "") if number else "bold")
            )
        parts.append(("\n" if number < len(rows) - 1 else "", ""))
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _cells(arm: ArmState) -> dict[str, str]:
    """Return an arm's cells by column."""
    return {
        "arm": arm.arm,
        "done": _done(arm),
        **{name: str(count or "") for name, count in _counts(arm).items() if name != "completed"},
        "best validation": value_in_words(arm.best, arm.metric),
        "left": duration(arm.seconds) if arm.seconds and arm.left else "",
        "by": values_in_words(arm.values),
    }


def duration(seconds: float) -> str:
    """Return a time in words.

    Args:
        seconds: How long.

    Example:
        >>> duration(42.3), duration(750), duration(7500)
        ('42 s', '12 min 30 s', '2 h 5 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def view_on(console: Console | None) -> Iterator[OnEvent]:
    """Show a run for as long as the block lasts: live in a terminal, as lines elsewhere; without a console, nothing.

    Args:
        console: Where to show it.

    Yields:
        What takes the run's events.
    """
    if console is None:
        yield lambda _watch, _event: None
    elif console.is_terminal:
        live = _LiveView(console)
        with Live(
            console=console,
            get_renderable=live.drawn,
            refresh_per_second=_REFRESHES,
            transient=True,
            vertical_overflow="crop",
        ):
            yield live
    else:
        yield _Lines(console)


def _print_outdated(console: Console, event: Event) -> None:
    if event.kind == "begun" and event.why:
        console.print(f"Trained again: {event.why}", highlight=False, markup=False)


class _LiveView:
    """Shows one row per arm, the last events and the time left; it is redrawn twice a second, by another thread."""

    def __init__(self, console: Console) -> None:
        self._console, self._since = console, time.monotonic()
        self._watch: Watch | None = None

    def __call__(self, watch: Watch, event: Event) -> None:
        self._watch = watch
        _print_outdated(self._console, event)

    def drawn(self) -> RenderableType:
        """Return what is shown now."""
        passed = duration(time.monotonic() - self._since)
        if self._watch is None:
            return Text(f"starting Ray ({passed})")
        state, width = self._watch.state(), self._console.width
        head = Text(f"{state.study}  {headline(state)}, {passed} passed", no_wrap=True, overflow="ellipsis")
        whole = state.whole
        bar = ProgressBar(total=whole.total or 1, completed=whole.done, width=min(_BAR, width))
        return Group(head, bar, Text(), progress_text(state, self._console.height - _AROUND))


class _Lines:
    """Prints a study's progress every ten seconds while trials start; prints faults and finished arms at once.

    A failed trial is printed at once too.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._next = console, 0.0

    def __call__(self, watch: Watch, event: Event) -> None:
        _print_outdated(self._console, event)
        failed = event.record is not None and event.record.status == "failed"
        fault = event.kind in ("again", "open", "cut") or failed
        if fault:
            self._print(watch.news)
        if event.record is not None and not watch.progress.arms[event.record.trial.arm_id].left:
            self._print(_arm_line(watch.arm(event.record.trial.arm_id)))
        # After an end a worker seems free until the next trial starts.
        due = event.kind == "started" and time.monotonic() >= self._next
        if watch.progress.left and (fault or due or event.kind == "begun"):
            self._next = time.monotonic() + _LINE_SECONDS
            self._print(headline(watch.state()))

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def own_console() -> Console:
    """Return the console of a run started from Python, which writes to standard error."""
    console = PlainConsole(stderr=True)
    if not console.is_jupyter:
        return console
    # A notebook's output takes text, but says that it is a terminal. Ray warns of missing widgets, which nothing uses.
    logging.getLogger("ray.widgets").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message="IProgress not found")
    return PlainConsole(stderr=True, force_jupyter=False, force_terminal=False)
