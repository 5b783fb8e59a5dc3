"""Plot of the accuracy over the mean number of candidates, if a selector chooses how many each image gets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_platform.reports.plots.drawing import legend, name_vertical, panels
from topk_platform.reports.plots.plot_data import Plotted, UnsuitedStudyError
from topk_platform.reports.words import command
from topk_platform.results.cardinality import CardinalityPoint, read_points

__all__ = ["cardinality"]

_Curve = list[tuple[float, float]]


def cardinality(data: Plotted) -> Figure:
    """Draw each loss's accuracy over the mean number of candidates, both as means over seeds.

    The solid line is for selectors, with a point for each penalty. The dotted line is for fixed numbers of candidates.
    """
    points = _points(data)
    curves = {key: result for key in data.arms if (result := _curves(data, key, points))}
    if not curves:  # studies do not train selectors by themselves, so a page leaves this plot out
        training = command("cardinality", data.study, given=data.table.given)
        raise UnsuitedStudyError(f"no selector was trained for its confirmed networks yet: `{training}`")
    columns = data.columns(curves)
    made, axes = panels(columns, 2.2)
    axes_of = dict(zip(columns, axes, strict=True))
    for (row, column), of_kind in curves.items():
        _draw(axes_of[column], data, row, column, of_kind)
    for ax in axes:
        ax.set_xlabel("candidates per image, mean")
    name_vertical(axes, "test accuracy, %")
    legend(made, axes)
    return made


def _points(data: Plotted) -> Mapping[str, Sequence[CardinalityPoint]]:
    """Return the points in the table by the arm's name; the table is read once, because it has all arms' points."""
    points: dict[str, list[CardinalityPoint]] = {}
    for point in read_points(data.held.ledger.store):
        points.setdefault(point.arm, []).append(point)
    return points


def _curves(
    data: Plotted, key: tuple[str, str], points: Mapping[str, Sequence[CardinalityPoint]]
) -> dict[str, _Curve]:
    """Return an arm's curves by kind, from the confirmations that count; a point is a mean over seeds."""
    counting = {row["key"] for row in data.table.confirmations.get(key, {}).values()}
    grouped: dict[tuple[str, float], list[CardinalityPoint]] = defaultdict(list)
    for point in points.get(data.arms[key].name, ()):
        if point.key in counting:
            grouped[point.kind, point.value].append(point)
    curves: dict[str, _Curve] = defaultdict(list)
    for (kind, _), same in sorted(grouped.items()):
        count = len(same)
        mean = sum(p.cardinality for p in same) / count, 100 * sum(p.accuracy for p in same) / count
        curves[kind].append(mean)
    return {kind: sorted(curve) for kind, curve in curves.items()}


def _draw(ax: Axes, data: Plotted, row: str, column: str, curves: dict[str, _Curve]) -> None:
    look = data.look(row, column)
    for kind, curve in curves.items():
        fixed = kind == "fixed"
        ax.plot(
            *zip(*curve, strict=True),
            color=look.colour,
            linestyle=":" if fixed else "-",
            marker="" if fixed else look.marker,
            label="_" if fixed else row,
        )
