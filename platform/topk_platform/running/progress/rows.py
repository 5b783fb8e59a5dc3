"""A study's progress as rows and as a headline; the same in the live view, in a log and in ``topk status``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text

from topk_platform.records import ArmState, GpuUse, StudyState
from topk_platform.running.progress.watching import value_in_words, values_in_words

__all__ = ["arm_line", "arms_text", "duration", "headline", "sparkline", "trials_text"]

_COUNTS = ("running", "pruned", "diverged", "failed", "lost")
_STYLES = {"running": "cyan", "pruned": "yellow", "diverged": "red", "failed": "red", "lost": "red"}
_SHORTEST = 12  # configurations get a column only if it has room for this many letters
_GAP = "  "
_GIB = 2**30
_BARS = "▁▂▃▄▅▆▇█"


def headline(state: StudyState) -> str:
    """Return a whole study's progress in one line."""
    tally, total = state.tally, None if state.left is None else state.tally.ended + state.left
    counts = {**_counts(tally.completed, tally.pruned, tally.diverged, tally.failed), "lost": state.lost}
    parts = [f"{count} {name}" for name, count in {**counts, "running": state.running}.items() if count]
    parts += [f"tried again {state.again}"] if state.again else []
    parts += [f"{state.workers} of {state.slots} workers busy"] if state.slots else []
    parts += [_gpus_in_words(state.gpu_use)] if state.gpu_use else []
    parts += (
        [f"about {duration(state.seconds)} left"]
        if state.left and state.seconds and state.seconds >= 1
        else []
    )
    done = str(tally.ended) if total is None else f"{tally.ended}/{total}"
    return f"{done} trials: {', '.join(parts) or 'nothing has ended yet'}"


def _gpus_in_words(gpus: GpuUse) -> str:
    # Parts of a GPU are rounded down: a sixth of it is 0.1666.
    used = f"{round(gpus.used, 2):g} of {round(gpus.there, 2):g} GPUs in use"
    if gpus.busy is None:
        return used
    return f"{used} ({100 * gpus.busy:.0f} % busy, {gpus.memory_used / _GIB:.0f} of {gpus.memory / _GIB:.0f} GiB)"


def _counts(completed: int, pruned: int, diverged: int, failed: int) -> dict[str, int]:
    return {"completed": completed, "pruned": pruned, "diverged": diverged, "failed": failed}


def arm_line(arm: ArmState) -> str:
    """Return an arm's progress in one line."""
    counts = [f"{count} {name}" for name in _COUNTS if (count := _count(arm, name))]
    best = value_in_words(arm.best, arm.metric)
    by = f" by {values_in_words(arm.values)}" if arm.values else ""
    parts = [f"{_done(arm)} trials", *counts, *([f"best validation {best}{by}"] if best else [])]
    return f"{arm.arm}: {', '.join(parts)}"


def arms_text(state: StudyState, width: int, most: int | None = None) -> Text:
    """Return one row per arm, one line each, under a header line; names are never cut off.

    The text is built by hand: a rich table takes the driver ten times as long, and this is drawn while it works.

    Args:
        state: The study's progress.
        width: Columns of the terminal. Cells that do not fit are left out, the configuration first.
        most: The most rows; the last one then sums up the arms without a row. Running arms get rows first.
    """
    shown, rest = _shown(state.arms, most)
    counts = [name for name in _COUNTS if any(_count(arm, name) for arm in state.arms)]
    trend = ["search"] if any(len(arm.trend) > 1 for arm in shown) else []
    left = ["left"] if any(arm.seconds and arm.left for arm in shown) else []
    for columns in (["best validation", *trend, *left], ["best validation", *left], ["best validation"], []):
        rows = _rows(shown, rest, [*counts, *columns])
        widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
        room = width - sum(widths) - len(_GAP) * len(widths)
        if room >= 0:
            break
    if columns and room >= _SHORTEST and any(arm.values for arm in shown):
        values = ["by", *(values_in_words(arm.values) for arm in shown), *([""] if rest else [])]
        rows = [[*cells, _cut(value, room)] for cells, value in zip(rows, values, strict=True)]
        widths.append(0)
    return _laid_out(rows, widths, ["", "", *(_STYLES[name] for name in counts)])


def trials_text(state: StudyState, most: int | None = None) -> Text:
    """Return one line per running trial: its epoch, its curve so far, and the curve's last value.

    Args:
        state: The study's progress.
        most: The most lines; by default there is no limit.
    """
    rows = [
        [
            one.trial,
            f"epoch {one.epoch}/{one.epochs}",
            sparkline(one.curve),
            value_in_words(one.curve[-1] if one.curve else None, one.metric),
        ]
        for one in state.training[:most]
    ]
    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    return _laid_out(rows, widths, ["", "", _STYLES["running"]], heads=False)


def sparkline(values: Sequence[float]) -> str:
    """Return one bar per value, from the lowest value to the highest; empty for fewer than two values.

    Example:
        >>> sparkline([0.5, 0.5, 0.75, 1.0])
        '▁▁▅█'
    """
    if len(values) < 2:
        return ""
    low, span = min(values), max(values) - min(values)
    return "".join(_BARS[round((len(_BARS) - 1) * (value - low) / span) if span else 0] for value in values)


def _cut(text: str, room: int) -> str:
    return text if cell_len(text) <= room else f"{text[: room - 1]}…"


def _laid_out(
    rows: Sequence[Sequence[str]], widths: Sequence[int], styles: Sequence[str], *, heads: bool = True
) -> Text:
    """Return rows of cells in columns: names and columns without a width align left, numbers right."""
    parts: list[tuple[str, str]] = []
    for row, cells in enumerate(rows):
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            pad = " " * (width - cell_len(cell))
            style = "bold" if heads and not row else styles[column] if column < len(styles) else ""
            parts.append((f"{_GAP}{pad}{cell}" if column else f"{cell}{pad}", style))
        parts.append(("\n" if row < len(rows) - 1 else "", ""))
    return Text.assemble(*parts, no_wrap=True, overflow="fold")


def _shown(arms: Sequence[ArmState], most: int | None) -> tuple[list[ArmState], list[ArmState]]:
    """Return the arms that get rows, in the study's order, and the others; running arms come before all others."""
    if most is None or len(arms) <= most:
        return list(arms), []
    by_interest = sorted(range(len(arms)), key=lambda i: (-_interest(arms[i]), i))
    kept = set(by_interest[: max(0, most - 1)])
    return [arms[i] for i in sorted(kept)], [arm for i, arm in enumerate(arms) if i not in kept]


def _interest(arm: ArmState) -> int:
    return 8 * (arm.running > 0) + 4 * (arm.lost > 0) + 2 * (arm.left != 0 and arm.done > 0) + (arm.left != 0)


def _rows(shown: Iterable[ArmState], rest: Sequence[ArmState], columns: Sequence[str]) -> list[list[str]]:
    """Return the cells of all rows, the heads first."""
    rows = [["arm", "done", *columns]]
    rows += [[arm.arm, _done(arm), *(_cell(arm, name) for name in columns)] for arm in shown]
    if rest:
        sums = (sum(_count(arm, name) for arm in rest) if name in _COUNTS else 0 for name in columns)
        rows.append([f"and {len(rest)} more", _sum(rest), *(str(number or "") for number in sums)])
    return rows


def _cell(arm: ArmState, column: str) -> str:
    if column in _COUNTS:
        return str(_count(arm, column) or "")
    if column == "search":
        return sparkline(arm.trend)
    if column == "left":
        return duration(arm.seconds) if arm.seconds and arm.left else ""
    return value_in_words(arm.best, arm.metric)


def _done(arm: ArmState) -> str:
    return str(arm.done) if arm.total is None else f"{arm.done}/{arm.total}"


def _sum(arms: Iterable[ArmState]) -> str:
    summed = list(arms)
    return f"{sum(arm.done for arm in summed)}/{sum(arm.total or arm.done for arm in summed)}"


def _count(arm: ArmState, name: str) -> int:
    count: int = getattr(arm if name in ("running", "lost") else arm.tally, name)
    return count


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
