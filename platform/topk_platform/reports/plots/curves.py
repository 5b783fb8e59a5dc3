"""Plots of curves: accuracies over all k, and over the epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from topk_platform.records import Ranks
from topk_platform.reports.plots.drawing import legend, name_vertical, panels
from topk_platform.reports.plots.plot_data import NothingToPlotError, Plotted
from topk_platform.reports.plots.style import OTHERS, Look
from topk_platform.reports.words import title_of
from topk_platform.results.contrasts import credit
from topk_platform.results.intervals import estimate

__all__ = ["topk", "topk_curve", "training"]

_MOST = 100
_LONG = 20
_MARKED_KS = (1, 2, 3, 5, 10, 20, 50, 100)
_Band = tuple[list[float], list[float], list[float]]


def topk_curve(ranks: Ranks, most: int) -> npt.NDArray[np.float64]:
    """Return a run's top-k accuracies for k from 1 to ``most``, as fractions of 1.

    Example:
        >>> one = np.array([0, 2])
        >>> topk_curve(Ranks(one, one * 0, one, one, "images"), 3)
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
