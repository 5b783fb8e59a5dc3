"""How a study stands, as rows of a table and as a line; the same in a live view, in a log and by ``topk status``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from topk_platform.records import ArmState, StudyState
from topk_platform.running.watching import value_told, values_told

__all__ = ["arm_line", "arms_table", "duration", "headline"]

_COUNTS = ("running", "pruned", "diverged", "failed", "lost")
_STYLES = {"running": "cyan", "pruned": "yellow", "diverged": "red", "failed": "red", "lost": "red"}
_SHORTEST = 12  # letters of a configuration that are worth a column
_GAP = 2


def duration(seconds: float) -> str:
    """Return a time in words.

    Example:
        >>> duration(42.3), duration(750), duration(7500)
        ('42 s', '12 min 30 s', '2 h 5 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def headline(state: StudyState) -> str:
    """Return how a whole study stands in one line."""
    tally, total = state.tally, None if state.left is None else state.tally.ended + state.left
    counts = {**_counts(tally.completed, tally.pruned, tally.diverged, tally.failed), "lost": state.lost}
    parts = [f"{count} {name}" for name, count in {**counts, "running": state.running}.items() if count]
    parts += [f"tried again {state.again}"] if state.again else []
    parts += [f"{state.workers} of {state.slots} workers busy"] if state.slots else []
    parts += [f"about {duration(state.seconds)} left"] if state.seconds and state.left else []
    done = str(tally.ended) if total is None else f"{tally.ended}/{total}"
    return f"{done} trials: {', '.join(parts) or 'nothing has ended yet'}"


def _counts(completed: int, pruned: int, diverged: int, failed: int) -> dict[str, int]:
    return {"completed": completed, "pruned": pruned, "diverged": diverged, "failed": failed}


def arm_line(arm: ArmState) -> str:
    """Return how an arm stands in one line."""
    counts = [f"{count} {name}" for name in _COUNTS if (count := _count(arm, name))]
    best = value_told(arm.best, arm.metric)
    by = f" by {values_told(arm.values)}" if arm.values else ""
    told = [f"{_done(arm)} trials", *counts, *([f"best validation {best}{by}"] if best else [])]
    return f"{arm.arm}: {', '.join(told)}"


def arms_table(state: StudyState, console: Console, most: int | None = None) -> Table:
    """Return a row an arm, one line each; names are never cut off.

    Args:
        state: How the study stands.
        console: Where it is shown: what does not fit into its width is left out, the configuration first.
        most: How many rows at most, the last of which sums up the arms that have none; those that run come first.
    """
    shown, rest = _shown(state.arms, most)
    counts = [name for name in _COUNTS if any(_count(arm, name) for arm in state.arms)]
    more = ["best validation", *(["left"] if any(arm.seconds and arm.left for arm in shown) else [])]
    for columns in (more, more[:1], []):
        table = _table(shown, rest, [*counts, *columns])
        room = console.width - Measurement.get(console, console.options, table).maximum - _GAP
        if room >= 0:
            break
    if not columns or room < _SHORTEST or not any(arm.values for arm in shown):
        return table
    return _table(shown, rest, [*counts, *columns], room)


def _shown(arms: Sequence[ArmState], most: int | None) -> tuple[list[ArmState], list[ArmState]]:
    """Return the arms that have rows, in the study's order, and the rest: those that run matter most, then the open."""
    if most is None or len(arms) <= most:
        return list(arms), []
    by_interest = sorted(range(len(arms)), key=lambda i: (-_interest(arms[i]), i))
    kept = set(by_interest[: max(0, most - 1)])
    return [arms[i] for i in sorted(kept)], [arm for i, arm in enumerate(arms) if i not in kept]


def _interest(arm: ArmState) -> int:
    return 8 * (arm.running > 0) + 4 * (arm.lost > 0) + 2 * (arm.left != 0 and arm.done > 0) + (arm.left != 0)


def _table(
    shown: Iterable[ArmState], rest: Sequence[ArmState], columns: Sequence[str], room: int = 0
) -> Table:
    """Return the table, with a column of the configurations where there is room for so many letters of them."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("arm", no_wrap=True, overflow="fold")
    for name in ("done", *columns):
        table.add_column(name, justify="right", no_wrap=True, style=_STYLES.get(name, ""))
    if room:
        table.add_column("by", no_wrap=True, overflow="ellipsis", max_width=room)
    for arm in shown:
        cells = [arm.arm, _done(arm), *(_cell(arm, name) for name in columns)]
        table.add_row(*map(Text, [*cells, *([values_told(arm.values)] if room else [])]))
    if rest:
        sums = [str(sum(_count(arm, name) for arm in rest) or "") for name in columns if name in _COUNTS]
        table.add_row(f"and {len(rest)} more", _sum(rest), *sums)
    return table


def _cell(arm: ArmState, column: str) -> str:
    if column in _COUNTS:
        return str(_count(arm, column) or "")
    if column == "left":
        return duration(arm.seconds) if arm.seconds and arm.left else ""
    return value_told(arm.best, arm.metric)


def _done(arm: ArmState) -> str:
    return str(arm.done) if arm.total is None else f"{arm.done}/{arm.total}"


def _sum(arms: Iterable[ArmState]) -> str:
    found = list(arms)
    return f"{sum(arm.done for arm in found)}/{sum(arm.total or arm.done for arm in found)}"


def _count(arm: ArmState, name: str) -> int:
    found: int = getattr(arm if name in ("running", "lost") else arm.tally, name)
    return found
