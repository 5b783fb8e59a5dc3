"""Parts that several kinds of plot share: the data to draw, panels of equal size, and legends."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from topk_platform.errors import UserError
from topk_platform.records import ArmHistory
from topk_platform.reports.plots.style import COLUMN, OTHERS, PAGE, Look, looks, wrapped
from topk_platform.results.from_store import Held
from topk_platform.results.table import Table, row_and_column
from topk_platform.results.tuning import Tuning
from topk_platform.specs import Arm, Study, less_is_better

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "NothingToPlotError",
    "Plotted",
    "UnsuitedStudyError",
    "check_searched",
    "figure",
    "legend",
    "legend_of",
    "name_vertical",
    "panels",
]

_ACROSS = 3
_CROWD, _NAMED = 16, 8  # with more rows than the former, only the baseline and so many losses are named


class NothingToPlotError(UserError):
    """There is nothing to draw for a kind of plot; the message says why."""


class UnsuitedStudyError(NothingToPlotError):
    """A kind of plot is for studies of another design: no result of this study could be drawn."""


@dataclass(frozen=True)
class Plotted:
    """The data that plots are drawn from.

    Args:
        source: The results in the store, with the epochs of the trials; None for findings, which have only a table.
        table: The table of the arms to draw.
        tuned: A function that reads how the arms were tuned.
        metric: The metric to draw, on the test split, or on the validation split in plots of validation results.
        by: The quantity on the horizontal axis, in plots that let the user choose it; empty for the default.
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
        """The results in the store; raises ``NothingToPlotError`` if there is only a table."""
        if self.source is None:
            raise NothingToPlotError("it is drawn from trials, which findings do not have")
        return self.source

    @cached_property
    def tuning(self) -> Tuning:
        """How the arms were tuned; read only once."""
        return self.tuned()

    @cached_property
    def looks(self) -> Mapping[str, Look]:
        """How each loss is drawn, by its label; this does not depend on which arms are shown."""
        return looks([arm.loss for arm in self.study.arms])

    @cached_property
    def arms(self) -> dict[tuple[str, str], Arm]:
        """The arms that are drawn, by row and column of the table."""
        result = {row_and_column(self.study, self.table.across, arm): arm for arm in self.study.arms}
        return {key: result[key] for key in result if key in self._shown}

    @cached_property
    def _shown(self) -> set[tuple[str, str]]:
        return set(self.table.confirmations)

    def history(self, arm: Arm) -> ArmHistory:
        """Return an arm's history."""
        return self.held.histories[self.study.arm_id(arm)]

    @cached_property
    def named(self) -> frozenset[str]:
        """The rows that are drawn with a colour and a name: all of them, unless there are more than sixteen.

        With more than sixteen rows these are the rows of the baseline and of the eight losses whose differences to it
        have the largest sums over all columns and models. The others are grey. This choice only makes the plot
        readable; it is not a test.
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
        result = [c.difference or c.value for c in cells if c is not None]
        sign = -1 if less_is_better(self.metric) else 1
        return sign * sum(estimate.mean for estimate in result if estimate is not None)

    def line_look(self, row: str, column: str) -> Look:
        """Return how the loss of a cell is drawn in a plot of many losses: in grey if it is not :attr:`named`."""
        result = self.look(row, column)
        return result if row in self.named else replace(result, colour=OTHERS)

    def look(self, row: str, column: str) -> Look:
        """Return how the loss of a cell is drawn."""
        return self.looks[self.arms[row, column].loss.label]


def check_searched(data: Plotted) -> None:
    """Raise ``UnsuitedStudyError`` if none of the arms is searched."""
    if not any(arm.is_searched for arm in data.arms.values()):
        raise UnsuitedStudyError("none of the arms is searched")


def figure(width: float, height: float) -> Figure:
    """Return an empty figure; width and height are in inches."""
    from topk_platform.reports.plots.figures import ShownFigure  # noqa: PLC0415 - matplotlib, for those who plot

    return ShownFigure(figsize=(width, height), layout="constrained")


def panels(
    names: Sequence[str], height: float, *, sharey: bool = False, sharex: bool = False, across: int = _ACROSS
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each name, and the panels' axes.

    A figure with a single column of panels is as wide as a column of text; any other is as wide as a page.

    Args:
        names: The panels' titles.
        height: The height of a panel, in inches.
        sharey: Whether the panels share their vertical axis.
        sharex: Whether the panels share their horizontal axis.
        across: The most panels in a row.
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


def name_vertical(axes: Sequence[Axes], text: str, across: int = _ACROSS) -> None:
    """Name the vertical axis of each row of panels: of its first panel.

    Args:
        axes: The axes of :func:`panels`.
        text: The name, broken where it is long.
        across: As of :func:`panels`.
    """
    for ax in axes[:: min(len(axes), across)]:
        ax.set_ylabel(textwrap.fill(text, 38))


def legend(made: Figure, axes: Iterable[Axes], width: int = 30) -> None:
    """Put one legend under the figure, with an entry for everything that has a name in one of the axes."""
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
    """Put a legend under the figure, which grows by the legend's height; an entry takes ``inches`` of the width."""
    width, height = made.get_size_inches()
    columns = max(1, min(len(handles), int(width / inches)))
    lines = math.ceil(len(handles) / columns)
    made.set_size_inches(width, height + 0.16 * lines)
    made.legend(list(handles), list(names), loc="outside lower center", ncols=columns)
