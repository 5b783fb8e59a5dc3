"""Plots of curves over k and over the epochs, and of search trials over each parameter's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from topk_platform.protocol import Ended
from topk_platform.reports.plots.drawing import ACROSS, legend, panels
from topk_platform.reports.plots.plot_data import Look, NothingToPlotError, Plotted
from topk_platform.reports.words import title_of
from topk_platform.results.contrasts import credit
from topk_platform.results.intervals import estimate
from topk_platform.specs import Arm, Choice, Dimension, Scalar

__all__ = ["search", "topk", "training"]

_MOST = 100  # the largest k that is drawn
_LONG = 20  # with more k, their axis is logarithmic
_NEAR = 2.0
_Dot = tuple[Scalar, float]
_Curves = Sequence[Sequence[float] | npt.NDArray[np.float64]]
"""A curve for each seed, as fractions of 1."""


def topk(data: Plotted) -> Figure:
    """Draw the test top-k accuracy over k, up to the number of classes or 100; bands are t-intervals over seeds."""
    kept = {key: result for key in data.arms if (result := data.held.ranks(data.completed(key)))}
    if not kept:
        raise NothingToPlotError("no confirmed run has kept the ranks of its test images")
    most = min(_MOST, max(int(r.label.max(initial=0)) for runs in kept.values() for r in runs.values()))
    ks = range(1, max(most, 1) + 1)
    curves = {
        key: (ks, [[credit(r, k).mean() for k in ks] for r in runs.values()]) for key, runs in kept.items()
    }
    made, axes = _panels(data, curves, "k, candidates", "test top-k accuracy, %")
    if len(ks) > _LONG:
        for ax in axes:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter("{x:g}")
    return made


def training(data: Plotted) -> Figure:
    """Draw the validation accuracy of confirmed runs over the epochs; bands are t-intervals over seeds.

    The accuracy is the one by which configurations are selected.
    """
    curves = {key: result for key in data.arms if (result := _epochs(data, key))}
    if not curves:
        raise NothingToPlotError("no epoch of a confirmed run is recorded")
    if max(len(epochs) for epochs, _ in curves.values()) < 2:
        raise NothingToPlotError("the confirmed runs were validated after only one epoch")
    metrics = {arm.metric for arm in data.arms.values()}
    selected = title_of(metrics.pop()) if len(metrics) == 1 else "accuracy that selects"
    return _panels(data, curves, "epoch", f"validation {selected}, %")[0]


def _epochs(data: Plotted, key: tuple[str, str]) -> tuple[list[int], _Curves] | None:
    """Return the epochs after which all confirmed runs of an arm were validated, and each run's accuracies there."""
    known = data.history(data.arms[key]).curves
    curves = [known[row["key"]] for row in data.completed(key) if known.get(row["key"])]
    epochs = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return (epochs, [[curve[e] for e in epochs] for curve in curves]) if epochs else None


def _panels(
    data: Plotted, curves: Mapping[tuple[str, str], tuple[Sequence[int], _Curves]], across: str, up: str
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each column of the table, and a line with a band for each arm.

    Args:
        data: The data.
        curves: The positions of each arm's points, and its curves, by row and column.
        across: The title of the horizontal axes.
        up: The title of the vertical axes.
    """
    columns = data.columns(curves)
    made, axes = panels(columns, 2.2, sharey=True)
    for (row, column), (xs, of_seeds) in curves.items():
        ax, look = axes[columns.index(column)], data.looks[row, column]
        means, low, high = _band(of_seeds)
        ax.plot(
            xs, means, color=look.colour, linestyle=look.line, marker=look.marker, markevery=0.12, label=row
        )
        ax.fill_between(xs, low, high, color=look.colour, alpha=0.15, linewidth=0)
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_xlabel(across)
    for ax in axes[::ACROSS]:
        ax.set_ylabel(up)
    legend(made, axes)
    return made, axes


def _band(curves: _Curves) -> tuple[list[float], list[float], list[float]]:
    """Return the mean of some curves of accuracies and the ends of its interval at each point, in percent."""
    result = [e for values in zip(*curves, strict=True) if (e := estimate([float(v) for v in values]))]
    halves = np.nan_to_num([e.half_width for e in result])
    means = np.array([e.mean for e in result])
    low, high = np.clip([means - halves, means + halves], 0, 1)
    return (100 * means).tolist(), (100 * low).tolist(), (100 * high).tolist()


def search(data: Plotted) -> Figure:
    """Draw how far each search trial is below the best trial of its arm, over the values of each searched parameter.

    Each regime has its own panels. The best trial of each arm is at 0. Trials without a result are left out.
    """
    if not any(arm.is_searched for arm in data.arms.values()):
        raise NothingToPlotError("none of the arms is searched")
    result = _dots(data)
    if not result:
        raise NothingToPlotError("no search trial was completed")
    columns = {column for _, _, column in result}
    across = len(columns) if 1 < len(columns) < ACROSS else ACROSS
    titles = [f"{row}: {name}{f', {column}' if len(columns) > 1 else ''}" for row, name, column in result]
    made, axes = panels(titles, 1.7, across=across)
    for ((row, name, column), (dimension, dots)), ax in zip(result.items(), axes, strict=True):
        _scatter(ax, dimension, dots, data.looks[row, column])
        ax.set_xlabel(name.replace("_", " "))
        _heights(ax, min(y for _, y in dots))
    for ax in axes[:: min(len(axes), across)]:
        ax.set_ylabel("validation,\npoints below the best")
    return made


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
        ax.update_datalim([(dimension.low, 0.0), (dimension.high, 0.0)])
        ax.set_xmargin(0.03)
    ax.plot(xs, ys, look.marker, color=look.colour, alpha=0.55, markeredgewidth=0)
