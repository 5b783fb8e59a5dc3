"""Plots of test results: accuracies against a number, differences to the baseline, maps and fronts."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from topk_platform.reports.cells import Cell
from topk_platform.reports.formats.words import metric_title, title_of
from topk_platform.reports.plots.axis import Axis, axis_of
from topk_platform.reports.plots.drawing import NothingToPlotError, Plotted, figure, legend, panels
from topk_platform.reports.plots.style import COLUMN, INK, OTHERS, PAGE, wrapped
from topk_platform.reports.statistics import Estimate
from topk_platform.specs import Arm, less_is_better, scale_of, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy", "differences", "front", "regimes"]

_WIDE, _MANY = 9, 16
_BARS = 30  # so many bars fit into the width of a column
_MARKS = {"": "", "better": "▲", "worse": "▼"}


class _Point(NamedTuple):
    x: float
    found: Estimate
    row: str
    column: str


def accuracy(data: Plotted) -> Figure:
    """Draw a test accuracy against the number in which regimes, or the arms of one loss, differ; bands are intervals.

    If there is no such number, the regimes stand side by side, and the intervals are bars.
    """
    axis = axis_of(list(data.arms.values()), data.by) or _categories(data)
    lines = _lines(data, axis)
    if not lines:
        raise NothingToPlotError(f"no confirmation has ended, so there is no {data.metric} to draw")
    shown = list(dict.fromkeys(panel for panel, _ in lines))
    made, axes = panels(shown, 2.3, sharey=True)
    places = dict(zip(shown, axes, strict=True))
    ordinal = bool(axis.names)
    if ordinal and sum(map(len, lines.values())) > _BARS:
        made.set_size_inches(PAGE, made.get_size_inches()[1])
    count = len({series for _, series in lines})
    for number, ((panel, series), points) in enumerate(lines.items()):
        shift = (number % count - (count - 1) / 2) * 0.7 / count if ordinal else 0.0
        _line(places[panel], data, series, points, shift=shift, bars=ordinal)
    for ax in axes:
        ax.set_xlabel(axis.title)
        ax.set_xscale("log" if axis.log else "linear")
        if ordinal:
            ax.set_xticks(range(len(axis.names)), [wrapped(n, 14) for n in axis.names])
            _turned(ax, axis.names)
    _labelled(axes, shown, f"test {metric_title(data.metric)}")
    legend(made, axes)
    return made


def _turned(ax: Axes, names: Sequence[str]) -> None:
    if len(names) > 4:
        for label in ax.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")


def _labelled(axes: Sequence[Axes], shown: Sequence[str], text: str) -> None:
    """Name the vertical axis of each row of panels."""
    for ax in axes[:: min(len(shown), 3)]:
        ax.set_ylabel(textwrap.fill(text, 38))


def _categories(data: Plotted) -> Axis:
    columns = {column: place for place, column in enumerate(data.table.columns)}
    places = {arm.name: float(columns[column]) for (_, column), arm in data.arms.items()}
    series = {arm.name: row for (row, _), arm in data.arms.items()}
    return Axis(data.table.across, places, series, dict.fromkeys(places, ""), names=tuple(columns))


def _lines(data: Plotted, axis: Axis) -> dict[tuple[str, str], list[_Point]]:
    lines: dict[tuple[str, str], list[_Point]] = {}
    for (row, column), arm in data.arms.items():
        cell = data.table.cells.get((row, column, data.metric))
        if arm.name in axis.places and cell is not None and cell.value is not None:
            point = _Point(axis.places[arm.name], cell.value, row, column)
            lines.setdefault((axis.panels[arm.name], axis.series[arm.name]), []).append(point)
    return {key: sorted(points, key=lambda point: point.x) for key, points in lines.items()}


def _line(
    ax: Axes, data: Plotted, series: str, points: Sequence[_Point], *, shift: float, bars: bool
) -> None:
    look = data.line_look(points[0].row, points[0].column)
    xs = [point.x + shift for point in points]
    scale = scale_of(data.metric)
    means, low, high = ([scale * v for v in values] for values in zip(*map(_ends, points), strict=True))
    style = "none" if bars else look.line
    order = 1 if look.colour == OTHERS else 3
    ax.plot(xs, means, color=look.colour, marker=look.marker, linestyle=style, label=series, zorder=order)
    if bars:
        ax.vlines(xs, low, high, color=look.colour, linewidth=1, zorder=order)
    elif order > 1:
        ax.fill_between(xs, low, high, color=look.colour, alpha=0.15, linewidth=0)


def _ends(point: _Point) -> tuple[float, float, float]:
    mean = point.found.mean
    known = not math.isnan(point.found.half_width)
    return (mean, point.found.low, point.found.high) if known else (mean, mean, mean)


def differences(data: Plotted) -> Figure:
    """Draw every difference to the baseline with its interval, a panel per regime; marked ones have full markers."""
    columns = [c for c in data.table.columns if any(_difference(data, row, c) for row in data.table.rows)]
    rows = [row for row in data.table.rows if any(_difference(data, row, c) for c in columns)]
    if not columns:
        why = "the study has no baseline" if data.study.baseline is None else "no pair of seeds has ended"
        raise NothingToPlotError(f"there are no differences of {data.metric} to draw: {why}")
    names = [wrapped(row, 24 if len(rows) <= _MANY else 34) for row in rows]
    lines = max(name.count("\n") + 1 for name in names)
    made, axes = panels(columns, 0.75 + (0.09 + 0.11 * lines) * len(rows), sharey=True)
    for column, ax in zip(columns, axes, strict=True):
        ax.axvline(0, color=INK, linewidth=0.6)
        for place, row in enumerate(rows):
            if cell := _difference(data, row, column):
                _bar(ax, data, row, column, place, cell)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_yticks(range(len(rows)), names)
    for ax in axes[-min(len(axes), 3) :]:
        ax.set_xlabel(f"{title_of(data.metric)},\n{_above(data)} {data.study.baseline}")
    return made


def _above(data: Plotted) -> str:
    less = "(less is better) " if less_is_better(data.metric) else ""
    return f"{unit_of(data.metric, difference=True)} {less}above"


def _difference(data: Plotted, row: str, column: str) -> Cell | None:
    cell = data.table.cells.get((row, column, data.metric))
    return cell if cell is not None and cell.difference is not None else None


def _bar(ax: Axes, data: Plotted, row: str, column: str, place: int, cell: Cell) -> None:
    look, found = data.look(row, column), cell.difference
    assert found is not None  # noqa: S101 - for the type checker
    scale = scale_of(data.metric)
    if not math.isnan(found.half_width):
        ax.plot([scale * found.low, scale * found.high], [place, place], color=look.colour, linewidth=1.2)
    fill = look.colour if cell.mark else "none"
    ax.plot([scale * found.mean], [place], marker=look.marker, color=look.colour, markerfacecolor=fill)


def regimes(data: Plotted) -> Figure:
    """Draw a map of losses and regimes, coloured by the difference to the baseline, or by the mean without a baseline.

    ▲ and ▼ are the table's marks. The best mean of each column has a frame.
    """
    baseline = data.study.baseline
    found = {place: v for place in data.arms if not math.isnan(v := _mapped(data, *place))}
    if not found or (baseline and not any(_difference(data, *place) for place in found)):
        raise NothingToPlotError(f"there are no differences or means of {data.metric} to draw")
    rows, columns, turned = data.table.rows, data.table.columns, len(data.table.columns) > _WIDE
    down, across = (columns, rows) if turned else (rows, columns)
    values = [[found.get((x, y) if turned else (y, x), math.nan) for x in across] for y in down]
    most = max(*map(abs, found.values()), 1e-9)
    span = (-most, most) if baseline else (min(found.values()), max(found.values()))
    made = figure(max(COLUMN, min(1.6 + 0.62 * len(across), PAGE)), 1.1 + 0.24 * len(down))
    ax = made.subplots()
    cmap = "PuOr_r" if baseline else "cividis"
    image = ax.imshow(values, cmap=cmap, vmin=span[0], vmax=span[1], aspect="auto")
    for (row, column), value in found.items():
        y, x = (
            (columns.index(column), rows.index(row)) if turned else (rows.index(row), columns.index(column))
        )
        place = (value - span[0]) / max(span[1] - span[0], 1e-9)
        _entry(ax, data.table.cells[row, column, data.metric], x, y, value, place)
    _named(ax, down, across)
    shown = f"{_above(data)}\n{baseline}" if baseline else unit_of(data.metric)
    made.colorbar(image, ax=ax, label=f"test {title_of(data.metric)},\n{shown}", pad=0.02)
    return made


def _named(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    ax.set_yticks(range(len(rows)), [wrapped(row, 26) for row in rows])
    ax.set_xticks(range(len(columns)), [wrapped(column, 13) for column in columns])
    _turned(ax, columns)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


def _mapped(data: Plotted, row: str, column: str) -> float:
    cell = data.table.cells.get((row, column, data.metric))
    if cell is None or cell.value is None:
        return math.nan
    if data.study.baseline is None:
        return scale_of(data.metric) * cell.value.mean
    if data.arms[row, column].loss.label == data.study.baseline:
        return 0.0
    return math.nan if cell.difference is None else scale_of(data.metric) * cell.difference.mean


def _entry(ax: Axes, cell: Cell, x: int, y: int, value: float, place: float) -> None:
    signed = cell.difference is not None
    text = f"{value:{'+' if signed else ''}.1f} {_MARKS[cell.mark]}".rstrip()
    dark = (place < 0.18 or place > 0.85) if signed else place < 0.5
    ax.text(x, y, text, ha="center", va="center", fontsize=6, color="#ffffff" if dark else "#000000")
    if cell.best:
        from matplotlib.patches import Rectangle  # noqa: PLC0415 - for those who plot

        ax.add_patch(
            Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, fill=False, edgecolor="#000000", linewidth=1.1)
        )


def front(data: Plotted) -> Figure:
    """Draw the means of two test accuracies against each other, and a line through the Pareto front.

    The two are ``top1`` and the metric to draw; if this is ``top1`` too, the study's last top-K accuracy takes its
    place. For arms that are searched by several metrics, all confirmed configurations are drawn.
    """
    metrics = _two(data)
    found = {column: _spots(data, column, metrics) for column in data.table.columns}
    shown = [column for column, spots in found.items() if spots]
    if not shown:
        raise NothingToPlotError(f"no confirmation has ended with both {metrics[0]} and {metrics[1]}")
    made, axes = panels(shown, 2.3)
    for column, ax in zip(shown, axes, strict=True):
        for row, x, y in found[column]:
            _spot(ax, data, row, column, (x, y), metrics)
        _edge(ax, [(x.mean, y.mean) for _, x, y in found[column]], metrics)
        ax.set_xlabel(f"test {metric_title(metrics[0])}")
    _labelled(axes, shown, f"test {metric_title(metrics[1])}")
    legend(made, axes)
    return made


_Spot = tuple[str, Estimate, Estimate]


def _two(data: Plotted) -> tuple[str, str]:
    kept = data.study.accuracies
    first = kept[0]
    plain = [m for m in kept if m.startswith("top")]
    other = data.metric if data.metric != first else plain[-1]
    if other == first:
        raise NothingToPlotError(f"the study keeps only {first}, and a front needs two metrics")
    return first, other


def _spots(data: Plotted, column: str, metrics: tuple[str, str]) -> list[_Spot]:
    spots: list[_Spot] = []
    for row in data.table.rows:
        pair = [data.table.cells.get((row, column, metric)) for metric in metrics]
        x, y = (None if cell is None else cell.value for cell in pair)
        if x is not None and y is not None:
            spots.append((row, x, y))
        if (known := data.table.fronts.get((row, column))) and set(metrics) <= set(known.metrics):
            order = [known.metrics.index(metric) for metric in metrics]
            tests = [[point.test[i] for i in order] for point in known.points[1:]]
            spots += [(row, a, b) for a, b in tests if a is not None and b is not None]
    return spots


def _spot(
    ax: Axes,
    data: Plotted,
    row: str,
    column: str,
    at: tuple[Estimate, Estimate],
    metrics: tuple[str, str],
) -> None:
    look, (x, y) = data.line_look(row, column), at
    (wide, high) = (scale_of(metric) for metric in metrics)
    order = 1 if look.colour == OTHERS else 3
    ax.plot(wide * x.mean, high * y.mean, look.marker, color=look.colour, label=row, zorder=order)
    if order > 1 and not math.isnan(x.half_width) and not math.isnan(y.half_width):
        across, up = [wide * x.low, wide * x.high], [high * y.low, high * y.high]
        ax.plot(across, [high * y.mean] * 2, color=look.colour, linewidth=0.7, alpha=0.6)
        ax.plot([wide * x.mean] * 2, up, color=look.colour, linewidth=0.7, alpha=0.6)


def unbeaten(points: Sequence[tuple[float, float]], metrics: tuple[str, str]) -> list[tuple[float, float]]:
    """Return, from left to right, the points to which no other point is equal or better in both metrics.

    Example:
        >>> unbeaten([(0.5, 3.0), (0.6, 3.0), (0.5, 2.0)], ("top1", "size95"))
        [(0.5, 2.0), (0.6, 3.0)]
    """
    sign = [-1 if less_is_better(metric) else 1 for metric in metrics]

    def beats(q: tuple[float, float], p: tuple[float, float]) -> bool:
        return q != p and all(s * (a - b) >= 0 for s, a, b in zip(sign, q, p, strict=True))

    return sorted({p for p in points if not any(beats(q, p) for q in points)})


def _edge(ax: Axes, points: Sequence[tuple[float, float]], metrics: tuple[str, str]) -> None:
    xs, ys = ([scale_of(metrics[i]) * p[i] for p in unbeaten(points, metrics)] for i in (0, 1))
    # The points that a point beats lie to its left, and below it, or above it if less is better.
    ax.step(xs, ys, where="pre", color=INK, linewidth=0.6, linestyle=":", zorder=0)


def arms_in(data: Plotted, column: str) -> list[tuple[str, Arm]]:
    """Return the rows of a column with their arms."""
    return [(row, arm) for (row, other), arm in data.arms.items() if other == column]
