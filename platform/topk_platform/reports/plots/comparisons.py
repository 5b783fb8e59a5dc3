"""Plots of a table's numbers with their intervals: accuracies, and differences to the baseline."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_platform.reports.plots.drawing import ACROSS, panels, wrapped
from topk_platform.reports.plots.plot_data import INK, NothingToPlotError, Plotted
from topk_platform.reports.words import metric_title, title_of
from topk_platform.results.intervals import Estimate
from topk_platform.specs import less_is_better, scale_of, unit_of

__all__ = ["accuracy", "differences"]

_MANY = 16  # with more rows, a long name takes a wider line instead of two


def accuracy(data: Plotted) -> Figure:
    """Draw each mean with its interval, in a panel for each regime with a row for each loss."""
    known = data.estimates(difference=False)
    if not known:
        raise NothingToPlotError(f"no confirmation has ended, so there is no {data.metric} to draw")
    made, _ = _intervals(data, known, known.keys(), f"test {metric_title(data.metric)}")
    return made


def differences(data: Plotted) -> Figure:
    """Draw each difference to the baseline with its interval, in a panel per regime; marked ones have full markers."""
    known, baseline = data.estimates(difference=True), data.study.baseline
    if not known:
        why = "the study has no baseline" if baseline is None else "no pair of seeds has ended"
        raise NothingToPlotError(f"there are no differences of {data.metric} to draw: {why}")
    marked = {key for key in known if data.table.cells[(*key, data.metric)].mark}
    less = "(less is better) " if less_is_better(data.metric) else ""
    unit = unit_of(data.metric, difference=True)
    made, axes = _intervals(data, known, marked, f"{title_of(data.metric)},\n{unit} {less}above {baseline}")
    for ax in axes:
        ax.axvline(0, color=INK, linewidth=0.6)
    return made


def _intervals(
    data: Plotted, known: Mapping[tuple[str, str], Estimate], full: Collection[tuple[str, str]], title: str
) -> tuple[Figure, list[Axes]]:
    """Return a figure of estimates by row and column, and its axes: a bar is an interval, its marker the mean.

    Args:
        data: The data.
        known: The estimates.
        full: The row and the column of each estimate whose marker is full; the others are hollow.
        title: The title of the horizontal axes.
    """
    rows, columns = [row for row in data.table.rows if any(row == r for r, _ in known)], data.columns(known)
    names = [wrapped(row, 24 if len(rows) <= _MANY else 34) for row in rows]
    lines = max(name.count("\n") + 1 for name in names)
    made, axes = panels(columns, 0.75 + (0.09 + 0.11 * lines) * len(rows), sharey=True)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    axes[0].set_yticks(range(len(rows)), names)
    scale = scale_of(data.metric)
    for key, e in known.items():
        look, (row, column) = data.looks[key], key
        axes[columns.index(column)].errorbar(
            scale * e.mean,
            rows.index(row),
            xerr=[[scale * (e.mean - e.low)], [scale * (e.high - e.mean)]],
            fmt=look.marker,
            color=look.colour,
            markerfacecolor=look.colour if key in full else "none",
        )
    for ax in axes[-ACROSS:]:
        ax.set_xlabel(title if len(columns) > 1 else f"{title}\n{wrapped(columns[0], 34)}")
    return made, axes
