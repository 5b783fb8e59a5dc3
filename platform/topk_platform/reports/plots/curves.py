"""Plots of curves over k and over the epochs, and of search trials over each parameter's values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from topk_platform.protocol import Ended
from topk_platform.records.per_image import Ranks
from topk_platform.reports.plots.drawing import legend, name_vertical, panels
from topk_platform.reports.plots.plot_data import (
    OTHERS,
    Look,
    NothingToPlotError,
    Plotted,
    UnsuitedStudyError,
)
from topk_platform.reports.words import title_of
from topk_platform.results.contrasts import credit
from topk_platform.results.intervals import estimate
from topk_platform.specs import Arm, Choice, Dimension, Scalar

__all__ = ["search", "topk", "topk_curve", "training"]

_MOST = 100
_LONG = 20
_MARKED_KS = (1, 2, 3, 5, 10, 20, 50, 100)
_Dot = tuple[Scalar, float]
_NEAR = 2.0
_ACROSS = 3  # panels in a row
_Band = tuple[list[float], list[float], list[float]]


def topk_curve(ranks: Ranks, most: int) -> npt.NDArray[np.float64]:
    """Return a run's top-k accuracies for k from 1 to ``most``, as fractions of 1.

    Example:
        >>> greater = np.array([0, 2])
        >>> topk_curve(Ranks(greater, greater * 0, greater, greater, "images"), 3)
        array([0.5, 0.5, 1. ])
    """
    return np.array([credit(ranks, k).mean() for k in range(1, most + 1)])


def topk(data: Plotted) -> Figure:
    """Draw the test top-k accuracy over k, up to the number of classes or 100; bands are t-intervals over seeds."""
    kept = {key: result for key in data.arms if (result := data.held.ranks(data.completed(key)))}
    if not kept:
        raise NothingToPlotError("no confirmed run has kept the ranks of its test images")
    most = min(_MOST, max(int(r.label.max(initial=0)) for runs in kept.values() for r in runs.values()))
    ks = list(range(1, max(most, 1) + 1))
    bands = {key: _band([topk_curve(r, len(ks)) for r in runs.values()]) for key, runs in kept.items()}
    made, axes = _panels(data, bands, dict.fromkeys(bands, ks), 1, _MARKED_KS if len(ks) > _LONG else ())
    for ax in axes:
        if len(ks) > _LONG:
            ax.set_xscale("log")
            ax.set_xticks([k for k in _MARKED_KS if k <= len(ks)])
            ax.xaxis.set_major_formatter("{x:g}")
            ax.tick_params(axis="x", which="minor", bottom=False)
        else:
            _whole(ax)
        ax.set_xlabel("k, candidates")
    name_vertical(axes, "test top-k accuracy, %")
    legend(made, axes)
    return made


def _band(curves: Sequence[Sequence[float] | npt.NDArray[np.float64]]) -> _Band:
    """Return the mean of some curves of accuracies and the ends of its interval at each point, in percent."""
    result = [e for values in zip(*curves, strict=True) if (e := estimate([float(v) for v in values]))]
    halves = np.nan_to_num([e.half_width for e in result])
    means = np.array([e.mean for e in result])
    low, high = np.clip([means - halves, means + halves], 0, 1)
    return (100 * means).tolist(), (100 * low).tolist(), (100 * high).tolist()


def _panels(
    data: Plotted,
    bands: Mapping[tuple[str, str], _Band],
    xs: Mapping[tuple[str, str], Sequence[float]],
    start: int,
    marked: Sequence[float] = (),
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each column of the table. A panel has a line with a band for each loss.

    Args:
        data: The data.
        bands: Each arm's line and band, by row and column.
        xs: The horizontal positions of each arm's points, by row and column.
        start: The left end of the horizontal axis.
        marked: The positions that have a marker; by default, about eight markers are evenly spaced.
    """
    columns = data.columns(bands)
    made, axes = panels(columns, 2.2, sharey=True)
    axes_of = dict(zip(columns, axes, strict=True))
    for (row, column), band in bands.items():
        _curve(axes_of[column], data.line_look(row, column), row, xs[row, column], band, marked)
    for ax in axes:
        ax.set_xlim(left=start)
    return made, axes


def _curve(ax: Axes, look: Look, row: str, xs: Sequence[float], band: _Band, marked: Sequence[float]) -> None:
    means, low, high = band
    every = [i for i, x in enumerate(xs) if x in marked] if marked else max(1, len(xs) // 8)
    (line,) = ax.plot(xs, means, color=look.colour, linestyle=look.line, label=row)
    line.set(marker=look.marker, markevery=every, clip_on=False)  # keeps markers at the left edge whole
    if look.colour == OTHERS:
        line.set_zorder(1)
        return  # its band would cover the named lines
    ax.fill_between(xs, low, high, color=look.colour, alpha=0.15, linewidth=0)


def training(data: Plotted) -> Figure:
    """Draw the validation accuracy of confirmed runs over the epochs; bands are t-intervals over seeds.

    The accuracy is the one by which configurations are selected.
    """
    curves = {arm_key: result for arm_key in data.arms if (result := _epochs(data, arm_key))}
    if not curves:
        raise NothingToPlotError("no epoch of a confirmed run is recorded")
    bands = {arm_key: _band(result[1]) for arm_key, result in curves.items()}
    epochs = {arm_key: result[0] for arm_key, result in curves.items()}
    if max(map(len, epochs.values())) < 2:
        raise NothingToPlotError("the confirmed runs were validated after only one epoch")
    made, axes = _panels(data, bands, epochs, min(map(min, epochs.values())))
    for ax in axes:
        ax.set_xlabel("epoch")
        _whole(ax)
    name_vertical(axes, f"validation {_selected(data)}, %")
    legend(made, axes)
    return made


def _epochs(data: Plotted, key: tuple[str, str]) -> tuple[list[int], list[list[float]]] | None:
    """Return the epochs after which all confirmed runs of an arm were validated, and each run's accuracies there."""
    arm = data.arms[key]
    known = data.history(arm).curves
    curves = [known[row["key"]] for row in data.completed(key) if known.get(row["key"])]
    epochs = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return (epochs, [[curve[e] for e in epochs] for curve in curves]) if epochs else None


def _selected(data: Plotted) -> str:
    metrics = {arm.metric for arm in data.arms.values()}
    return title_of(metrics.pop()) if len(metrics) == 1 else "accuracy that selects"


def _whole(ax: Axes) -> None:
    """Mark only whole numbers on the horizontal axis."""
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))


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
        ax.set_xlim(*_limits(float(dimension.low), float(dimension.high), log=dimension.log))
    ax.plot(xs, ys, look.marker, color=look.colour, alpha=0.55, markeredgewidth=0)


def _limits(low: float, high: float, *, log: bool) -> tuple[float, float]:
    """Return the ends of an axis that is a little longer than a range at both ends."""
    if not log:
        return low - 0.03 * (high - low), high + 0.03 * (high - low)
    more = math.exp(0.03 * math.log(high / low))
    return low / more, high * more
