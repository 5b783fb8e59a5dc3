"""Plots of test results: accuracies over a number, differences to the baseline, and maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_platform.reports.plots.axis import Axis, axis_of
from topk_platform.reports.plots.drawing import (
    figure,
    frame,
    legend,
    name_vertical,
    panels,
    turn_names,
    wrapped,
)
from topk_platform.reports.plots.plot_data import COLUMN, INK, OTHERS, PAGE, NothingToPlotError, Plotted
from topk_platform.reports.result_tables import mark
from topk_platform.reports.words import metric_title, title_of
from topk_platform.results.cells import Cell
from topk_platform.results.intervals import Estimate
from topk_platform.specs import digits_of, less_is_better, scale_of, unit_of

__all__ = ["accuracy", "differences", "regimes"]

_WIDE, _MANY = 9, 16
_BARS = 30  # the most bars that fit into the width of a column


class _Point(NamedTuple):
    x: float
    mean: Estimate
    row: str
    column: str


def accuracy(data: Plotted) -> Figure:
    """Draw a test accuracy over the number in which the regimes differ, or in which the arms of one loss differ.

    With three numbers or more, lines join the means, and bands show the intervals; a line is broken at a number
    without a result. With fewer numbers, or if the regimes do not differ in a number, the regimes are side by side,
    and bars show the intervals. If there is a single regime, each loss has a row.
    """
    axis = axis_of(list(data.arms.values()), data.by)
    if axis is None and len(filled := data.columns(data.estimates(difference=False))) == 1:
        return _means(data, filled[0])
    axis = axis or _categories(data)
    lines = _lines(data, axis)
    if not lines:
        raise NothingToPlotError(f"no confirmation has ended, so there is no {data.metric} to draw")
    shown = list(dict.fromkeys(panel for panel, _ in lines))
    made, axes = panels(shown, 2.3, sharey=True)
    positions = dict(zip(shown, axes, strict=True))
    ordinal = bool(axis.names)
    if ordinal and sum(map(len, lines.values())) > _BARS:
        made.set_size_inches(PAGE, made.get_size_inches()[1])
    count = len({series for _, series in lines})
    for number, ((panel, series), points) in enumerate(lines.items()):
        shift = (number % count - (count - 1) / 2) * 0.7 / count if ordinal else 0.0
        _line(positions[panel], data, series, points, axis.levels(panel, series), shift=shift, bars=ordinal)
    for ax in axes:
        ax.set_xlabel(axis.title)
        ax.set_xscale("log" if axis.log else "linear")
        if ordinal:
            ax.set_xticks(range(len(axis.names)), [wrapped(n, 14) for n in axis.names])
            turn_names(ax, axis.names)
    name_vertical(axes, f"test {metric_title(data.metric)}")
    legend(made, axes)
    return made


def _means(data: Plotted, column: str) -> Figure:
    """Draw the means of one column with their intervals, a row for each loss."""
    means = data.estimates(difference=False)
    made, (ax,) = _rows_of([row for row, _ in means], [column])
    for position, (key, mean) in enumerate(means.items()):
        _interval(ax, data, key, position, mean, full=True)
    ax.set_xlabel(f"test {metric_title(data.metric)}\n{wrapped(column, 34)}")
    return made


def _rows_of(rows: Sequence[str], columns: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each column, and its axes. Each row of the table has its own line in a panel."""
    names = [wrapped(row, 24 if len(rows) <= _MANY else 34) for row in rows]
    lines = max(name.count("\n") + 1 for name in names)
    made, axes = panels(columns, 0.75 + (0.09 + 0.11 * lines) * len(rows), sharey=True)
    for ax in axes:
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_yticks(range(len(rows)), names)
    return made, axes


def _categories(data: Plotted) -> Axis:
    columns = {column: position for position, column in enumerate(data.table.columns)}
    positions = {arm.name: float(columns[column]) for (_, column), arm in data.arms.items()}
    series = {arm.name: row for (row, _), arm in data.arms.items()}
    return Axis(
        data.table.across, positions, series, dict.fromkeys(positions, ""), names=tuple(columns), shared=True
    )


def _lines(data: Plotted, axis: Axis) -> dict[tuple[str, str], list[_Point]]:
    lines: dict[tuple[str, str], list[_Point]] = {}
    for (row, column), mean in data.estimates(difference=False).items():
        arm = data.arms[row, column]
        if arm.name in axis.positions:
            point = _Point(axis.positions[arm.name], mean, row, column)
            lines.setdefault((axis.panels[arm.name], axis.series[arm.name]), []).append(point)
    return {key: sorted(points, key=lambda point: point.x) for key, points in lines.items()}


def _line(
    ax: Axes,
    data: Plotted,
    series: str,
    points: Sequence[_Point],
    levels: Sequence[float],
    *,
    shift: float,
    bars: bool,
) -> None:
    """Draw a line over its levels; the line is broken at a level without a result."""
    look = data.line_look(points[0].row, points[0].column)
    measured = {point.x: point for point in points}
    ends = [_ends(measured[x]) if x in measured else (math.nan,) * 3 for x in levels]
    xs = [x + shift for x in levels]
    scale = scale_of(data.metric)
    means, low, high = ([scale * v for v in values] for values in zip(*ends, strict=True))
    style = "none" if bars else look.line
    order = 1 if look.colour == OTHERS else 3
    ax.plot(xs, means, color=look.colour, marker=look.marker, linestyle=style, label=series, zorder=order)
    if bars:
        ax.vlines(xs, low, high, color=look.colour, linewidth=1, zorder=order)
    elif order > 1:
        ax.fill_between(xs, low, high, color=look.colour, alpha=0.15, linewidth=0)


def _ends(point: _Point) -> tuple[float, float, float]:
    mean = point.mean.mean
    known = not math.isnan(point.mean.half_width)
    return (mean, point.mean.low, point.mean.high) if known else (mean, mean, mean)


def differences(data: Plotted) -> Figure:
    """Draw each difference to the baseline with its interval, in a panel per regime; marked ones have full markers."""
    known = data.estimates(difference=True)
    columns, rows = data.columns(known), [row for row in data.table.rows if any(row == r for r, _ in known)]
    if not columns:
        why = "the study has no baseline" if data.study.baseline is None else "no pair of seeds has ended"
        raise NothingToPlotError(f"there are no differences of {data.metric} to draw: {why}")
    made, axes = _rows_of(rows, columns)
    for column, ax in zip(columns, axes, strict=True):
        ax.axvline(0, color=INK, linewidth=0.6)
        for position, row in enumerate(rows):
            if (row, column) in known:
                full = bool(data.table.cells[row, column, data.metric].mark)
                _interval(ax, data, (row, column), position, known[row, column], full=full)
    for ax in axes[-min(len(axes), 3) :]:
        ax.set_xlabel(f"{title_of(data.metric)},\n{_above(data)} {data.study.baseline}")
    return made


def _above(data: Plotted) -> str:
    less = "(less is better) " if less_is_better(data.metric) else ""
    return f"{unit_of(data.metric, difference=True)} {less}above"


def _interval(
    ax: Axes, data: Plotted, arm: tuple[str, str], position: int, estimate: Estimate, *, full: bool
) -> None:
    """Draw an estimate in its own row: a full or hollow marker, over a bar that is as long as the interval."""
    look, scale = data.look(*arm), scale_of(data.metric)
    if not math.isnan(estimate.half_width):
        ax.plot(
            [scale * estimate.low, scale * estimate.high],
            [position, position],
            color=look.colour,
            linewidth=1.2,
        )
    fill = look.colour if full else "none"
    ax.plot([scale * estimate.mean], [position], marker=look.marker, color=look.colour, markerfacecolor=fill)


def regimes(data: Plotted) -> Figure:
    """Draw a map of losses and regimes, coloured by the difference to the baseline, or by the mean without a baseline.

    ▲ and ▼ are the table's marks; they are hollow in a secondary metric. ≈ marks equivalence. The best mean of each
    column has a frame.
    """
    baseline, scale = data.study.baseline, scale_of(data.metric)
    shown = data.estimates(difference=baseline is not None)
    result = {key: scale * estimate.mean for key, estimate in shown.items()}
    if baseline is not None:
        means = data.estimates(difference=False)
        result |= {key: 0.0 for key in means if data.arms[key].loss.label == baseline}
    if not shown:
        raise NothingToPlotError(f"there are no differences or means of {data.metric} to draw")
    rows, columns, turned = data.table.rows, data.table.columns, len(data.table.columns) > _WIDE
    down, across = (columns, rows) if turned else (rows, columns)
    values = [[result.get((x, y) if turned else (y, x), math.nan) for x in across] for y in down]
    most = max(*map(abs, result.values()), 1e-9)
    span = (-most, most) if baseline else (min(result.values()), max(result.values()))
    made = figure(max(COLUMN, min(1.6 + 0.62 * len(across), PAGE)), 1.1 + 0.24 * len(down))
    ax = made.subplots()
    cmap = "PuOr_r" if baseline else "cividis"
    image = ax.imshow(values, cmap=cmap, vmin=span[0], vmax=span[1], aspect="auto")
    for (row, column), value in result.items():
        y, x = (
            (columns.index(column), rows.index(row)) if turned else (rows.index(row), columns.index(column))
        )
        key = (value - span[0]) / max(span[1] - span[0], 1e-9)
        _entry(ax, data.table.cells[row, column, data.metric], x, y, value, key)
    _named(ax, down, across)
    unit = f"{_above(data)}\n{baseline}" if baseline else unit_of(data.metric)
    made.colorbar(image, ax=ax, label=f"test {title_of(data.metric)},\n{unit}", pad=0.02)
    return made


def _named(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    ax.set_yticks(range(len(rows)), [wrapped(row, 26) for row in rows])
    ax.set_xticks(range(len(columns)), [wrapped(column, 13) for column in columns])
    turn_names(ax, columns)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


def _entry(ax: Axes, cell: Cell, x: int, y: int, value: float, position: float) -> None:
    signed = cell.difference is not None
    text = f"{value:{'+' if signed else ''}.{digits_of(cell.metric)}f} {mark(cell)}".rstrip()
    dark = (position < 0.18 or position > 0.85) if signed else position < 0.5
    ax.text(x, y, text, ha="center", va="center", fontsize=6, color="#ffffff" if dark else "#000000")
    if cell.best:
        frame(ax, (x - 0.47, y - 0.45), (0.94, 0.9), "#000000", 1.1)
