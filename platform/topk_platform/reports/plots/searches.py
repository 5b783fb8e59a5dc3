"""Plot of the search: the results over each parameter's values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_platform.protocol import Ended
from topk_platform.reports.plots.drawing import panels
from topk_platform.reports.plots.plot_data import NothingToPlotError, Plotted, UnsuitedStudyError
from topk_platform.reports.plots.style import Look
from topk_platform.specs import Arm, Choice, Dimension, Scalar

__all__ = ["search"]

_Dot = tuple[Scalar, float]
_NEAR = 2.0
_ACROSS = 3  # panels in a row


def search(data: Plotted) -> Figure:
    """Draw how far each search trial is below the best trial of its arm, over the values of each searched parameter.

    Each regime has its own panels. The best trial of each arm is at 0. Trials without a result are left out.
    """
    if not any(arm.is_searched for arm in data.arms.values()):
        raise UnsuitedStudyError("none of the arms is searched")
    result = _dots(data)
    if not result:
        raise NothingToPlotError("no search trial was completed")
    columns = {column for _, _, column in result}
    across = len(columns) if 1 < len(columns) < _ACROSS else _ACROSS
    made, axes = panels([_title(*key, several=len(columns) > 1) for key in result], 1.7, across=across)
    for ((row, name, column), (dimension, dots)), ax in zip(result.items(), axes, strict=True):
        _scatter(ax, dimension, dots, data.look(row, column))
        ax.set_xlabel(name.replace("_", " "))
        _heights(ax, min(y for _, y in dots))
    for ax in axes[:: min(len(axes), across)]:
        ax.set_ylabel("validation,\npoints below the best")
    return made


def _title(row: str, name: str, column: str, *, several: bool) -> str:
    return f"{row}: {name}, {column}" if several else f"{row}: {name}"


def _heights(ax: Axes, lowest: float) -> None:
    """Set the vertical axis. If a trial is more than two points below the best, it is logarithmic below minus one."""
    if lowest < -_NEAR:
        ax.set_yscale("symlog", linthresh=1.0)
        ax.set_yticks([0, *(-(10.0**power) for power in range(3) if 10**power < -2 * lowest)])
        ax.set_yticks([], minor=True)
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set_ylim(1.5 * lowest, 0.4)
    else:
        ax.set_ylim(min(1.1 * lowest, -0.5), 0.1 * max(-lowest, 0.5))


def _dots(data: Plotted) -> dict[tuple[str, str, str], tuple[Dimension, list[_Dot]]]:
    """Return the dots of each panel, by row, parameter and column. A parameter's panels are next to each other."""
    completed = {key: _completed(data, arm) for key, arm in data.arms.items()}
    names = dict.fromkeys(name for arm in data.arms.values() for name in arm.loss.space)
    result: dict[tuple[str, str, str], tuple[Dimension, list[_Dot]]] = {}
    for row, name, column in product(data.table.rows, names, data.table.columns):
        trials = completed.get((row, column), [])
        best = max((trial.objective for trial in trials), default=0.0)
        if dots := [(t.values[name], 100 * (t.objective - best)) for t in trials if name in t.values]:
            result[row, name, column] = data.arms[row, column].loss.space[name], dots
    return result


def _completed(data: Plotted, arm: Arm) -> list[Ended]:
    """Return an arm's completed search trials within the study's budget, in the order of their numbers."""
    return [
        trial
        for number, trial in sorted(data.history(arm).ended().items())
        if trial.status == "completed" and arm.repeats.holds(number, data.study.trials)
    ]


def _scatter(ax: Axes, dimension: Dimension, dots: Sequence[_Dot], look: Look) -> None:
    ys = [y for _, y in dots]
    if isinstance(dimension, Choice):
        options = [str(option) for option in dimension.options]
        xs = [float(options.index(str(value))) for value, _ in dots]
        ax.set_xticks(range(len(options)), options)
    else:
        xs = [float(value) for value, _ in dots if isinstance(value, int | float)]
        ax.set_xscale("log" if dimension.log else "linear")
        ax.set_xlim(*_room(float(dimension.low), float(dimension.high), log=dimension.log))
    ax.plot(xs, ys, look.marker, color=look.colour, alpha=0.55, markeredgewidth=0)


def _room(low: float, high: float, *, log: bool) -> tuple[float, float]:
    """Return the ends of an axis that is a little longer than a range at both ends."""
    if not log:
        return low - 0.03 * (high - low), high + 0.03 * (high - low)
    more = math.exp(0.03 * math.log(high / low))
    return low / more, high * more
