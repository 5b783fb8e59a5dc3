"""What several kinds of plot share: panels of equal size, names of losses, and what there is to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from topk_platform.errors import UserError
from topk_platform.records import ArmHistory
from topk_platform.reports.plots.style import COLUMN, OTHERS, PAGE, Look, looks, wrapped
from topk_platform.reports.reading import Held
from topk_platform.reports.table import Table, row_and_column
from topk_platform.reports.tuning import Tuning
from topk_platform.specs import Arm, Study, less_is_better

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["NothingToPlotError", "Plotted", "figure", "legend", "legend_of", "panels"]

_ACROSS = 3
_CROWD, _NAMED = 16, 8  # rows from which on a few are named, and how many besides the baseline


class NothingToPlotError(UserError):
    """Of this kind there is nothing to draw, for the reason that it tells."""


@dataclass(frozen=True)
class Plotted:
    """What plots are drawn from.

    Args:
        source: What the store holds, with the epochs of its trials; None of findings, which are a table alone.
        table: Its table, of the arms to draw.
        tuned: Reads how the arms were tuned.
        metric: The metric to draw; of the test set, and of the validation set where that is drawn.
        by: What stands on the horizontal axis, where it may be chosen; empty for the default.
    """

    source: Held | None
    table: Table
    tuned: Callable[[], Tuning]
    metric: str
    by: str = ""

    @property
    def study(self) -> Study:
        """The study."""
        return self.table.study

    @property
    def held(self) -> Held:
        """What the store holds; raises ``NothingToPlotError`` where there is a table alone."""
        if self.source is None:
            raise NothingToPlotError("it is drawn from trials, which findings do not have")
        return self.source

    @cached_property
    def tuning(self) -> Tuning:
        """How its arms were tuned; read once."""
        return self.tuned()

    @cached_property
    def looks(self) -> Mapping[str, Look]:
        """How each loss is drawn, by label; the same whichever arms are shown."""
        return looks([arm.loss for arm in self.study.arms])

    @cached_property
    def arms(self) -> dict[tuple[str, str], Arm]:
        """The arms by row and column of the table."""
        found = {row_and_column(self.study, self.table.across, arm): arm for arm in self.study.arms}
        return {place: found[place] for place in found if place in self._shown}

    @cached_property
    def _shown(self) -> set[tuple[str, str]]:
        return set(self.table.confirmations)

    def history(self, arm: Arm) -> ArmHistory:
        """Return an arm's history."""
        return self.held.histories[self.study.arm_id(arm)]

    @cached_property
    def named(self) -> frozenset[str]:
        """The rows that lines and points have a colour and a name for: all, or where that would be a crowd a few.

        Of more than sixteen rows they are the baseline's and those of the eight losses whose differences to it sum up
        to the most over all columns and models. That is for the eye alone: the others are grey, and nothing is tested.
        """
        rows = self.table.rows
        if len(rows) <= _CROWD:
            return frozenset(rows)
        labels = {row: arm.loss.label for (row, _), arm in self.arms.items()}
        leads: dict[str, float] = {}
        for row, label in labels.items():
            leads[label] = leads.get(label, 0.0) + self._lead(row)
        leads.pop(self.study.baseline or "", None)
        leading = {self.study.baseline, *sorted(leads, key=lambda label: -leads[label])[:_NAMED]}
        return frozenset(row for row, label in labels.items() if label in leading)

    def _lead(self, row: str) -> float:
        cells = [self.table.cells.get((row, column, self.metric)) for column in self.table.columns]
        found = [c.difference or c.value for c in cells if c is not None]
        sign = -1 if less_is_better(self.metric) else 1
        return sign * sum(estimate.mean for estimate in found if estimate is not None)

    def line_look(self, row: str, column: str) -> Look:
        """Return how the loss of a cell is drawn among many: in grey where it is not :attr:`named`."""
        found = self.look(row, column)
        return found if row in self.named else replace(found, colour=OTHERS)

    def look(self, row: str, column: str) -> Look:
        """Return how the loss of a cell is drawn."""
        return self.looks[self.arms[row, column].loss.label]


def figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches."""
    from topk_platform.reports.plots.figures import ShownFigure  # noqa: PLC0415 - matplotlib, for those who plot

    return ShownFigure(figsize=(width, height), layout="constrained")


def panels(
    names: Sequence[str], height: float, *, sharey: bool = False, sharex: bool = False, across: int = _ACROSS
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each name: one is a column wide, several are a page wide, some in a row.

    Args:
        names: The panels' titles.
        height: Of a panel, in inches.
        sharey: Whether they have one vertical axis.
        sharex: Whether they have one horizontal axis.
        across: How many are in a row.
    """
    across = min(len(names), across)
    down = math.ceil(len(names) / across)
    made = figure(COLUMN if across == 1 else PAGE, height * down)
    grid = made.subplots(down, across, squeeze=False, sharey=sharey, sharex=sharex)
    axes: list[Axes] = list(grid.flat)
    for name, ax in zip(names, axes, strict=False):
        ax.set_title(wrapped(name, 34) if len(names) > 1 else "")
    for ax in axes[len(names) :]:
        ax.remove()
    return made, axes[: len(names)]


def legend(made: Figure, axes: Iterable[Axes], width: int = 30) -> None:
    """Put one legend under the figure, of all that has a name in one of the axes."""
    handles: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(str(label), handle)
    others = {name: handle for name, handle in handles.items() if _is_other(handle)}
    handles = {name: handle for name, handle in handles.items() if name not in others}
    if others:
        handles[f"{len(others)} others"] = next(iter(others.values()))
    if handles:
        legend_of(made, list(handles.values()), [wrapped(label, width) for label in handles])


def _is_other(handle: Artist) -> bool:
    colour = getattr(handle, "get_color", None)
    return colour is not None and colour() == OTHERS


def legend_of(made: Figure, handles: Sequence[Artist], names: Sequence[str], inches: float = 1.7) -> None:
    """Put a legend under the figure, which grows by it; an entry takes so many inches."""
    width, height = made.get_size_inches()
    columns = max(1, min(len(handles), int(width / inches)))
    lines = math.ceil(len(handles) / columns)
    made.set_size_inches(width, height + 0.16 * lines)
    made.legend(list(handles), list(names), loc="outside lower center", ncols=columns)
