"""Plot of two test metrics against each other, with the Pareto front of the means."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_platform.reports.plots.drawing import legend, name_vertical, panels
from topk_platform.reports.plots.plot_data import NothingToPlotError, Plotted, UnsuitedStudyError
from topk_platform.reports.plots.style import INK, OTHERS
from topk_platform.reports.words import metric_title
from topk_platform.results.statistics import Estimate
from topk_platform.specs import less_is_better, scale_of

__all__ = ["front", "unbeaten"]


def front(data: Plotted) -> Figure:
    """Draw the means of two test metrics against each other, and a line through the Pareto front.

    The two metrics are the study's first accuracy, such as ``top1``, and the metric to draw. If both are the same, the
    study's last top-K accuracy is drawn instead. For arms that are searched by several metrics, all confirmed
    configurations are drawn.
    """
    metrics = _two(data)
    result = {column: _spots(data, column, metrics) for column in data.table.columns}
    shown = [column for column, spots in result.items() if spots]
    if not shown:
        raise NothingToPlotError(f"no confirmation has ended with both {metrics[0]} and {metrics[1]}")
    made, axes = panels(shown, 2.3)
    for column, ax in zip(shown, axes, strict=True):
        for row, x, y in result[column]:
            _spot(ax, data, row, column, (x, y), metrics)
        _edge(ax, [(x.mean, y.mean) for _, x, y in result[column]], metrics)
        ax.set_xlabel(f"test {metric_title(metrics[0])}")
    name_vertical(axes, f"test {metric_title(metrics[1])}")
    legend(made, axes)
    return made


_Spot = tuple[str, Estimate, Estimate]


def _two(data: Plotted) -> tuple[str, str]:
    kept = data.study.accuracies
    first = kept[0]
    plain = [m for m in kept if m.startswith("top")]
    other = data.metric if data.metric != first else plain[-1]
    if other == first:
        raise UnsuitedStudyError(f"the study keeps only {first}, and a front needs two metrics")
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
    """Return the points that no other point beats, from left to right.

    A point beats a different point if it is equal or better in both metrics.

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
    # A point beats the points to its left that are below it, or above it if less is better.
    ax.step(xs, ys, where="pre", color=INK, linewidth=0.6, linestyle=":", zorder=0)
