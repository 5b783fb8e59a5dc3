"""The performance profile: the share of the regimes in which a loss's error is close to the lowest error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from topk_platform.reports.plots.drawing import figure, legend
from topk_platform.reports.plots.plot_data import NothingToPlotError, Plotted, UnsuitedStudyError
from topk_platform.reports.plots.style import COLUMN, INK
from topk_platform.reports.words import title_of
from topk_platform.results.cells import Cell
from topk_platform.results.statistics.regimes import in_common
from topk_platform.specs import less_is_better

__all__ = ["profile", "ratios"]

_ENOUGH = 3
_WIDE = 4.0  # larger ratios need a logarithmic axis


def ratios(errors: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return the ratio of each loss's error to the lowest error in the same regime.

    If the lowest error is 0, losses with the error 0 get the ratio 1, and all others infinity.

    Args:
        errors: By loss, the error in each regime; infinite if the loss has none because runs were lost.

    Example:
        >>> ratios({"a": [0.1, 0.2], "b": [0.2, math.inf]})
        {'a': [1.0, 1.0], 'b': [2.0, inf]}
    """
    lowest = [min(regime) for regime in zip(*errors.values(), strict=True)]
    return {row: [_ratio(*pair) for pair in zip(own, lowest, strict=True)] for row, own in errors.items()}


def _ratio(error: float, lowest: float) -> float:
    if math.isinf(error):
        return math.inf
    return error / lowest if lowest else (math.inf if error else 1.0)


def profile(data: Plotted) -> Figure:
    """Draw the share of regimes in which a loss's test error is at most a given multiple of the lowest error there.

    At the multiple 1, a curve shows how often its loss has the lowest error. Further to the right, it shows how far the
    loss is behind in the other regimes. In a regime in which a loss has a lost seed, its error counts as infinite.
    Regimes in which some loss has no result yet are left out. If less of the metric is better, as for the size of
    prediction sets, the metric itself takes the place of the error. The order of the losses behind the best one may
    depend on which other losses are drawn (Gould and Scott).

    Source:
        Dolan and Moré, Benchmarking optimization software with performance profiles, Mathematical Programming 91,
        2002; Gould and Scott, A note on performance profiles for benchmarking software, ACM TOMS 43, 2016.
    """
    errors = _errors(data)
    count = min(map(len, errors.values()), default=0)
    if len(errors) < 2 or count < _ENOUGH:
        suited = len(data.table.rows) > 1 and len(data.table.columns) >= _ENOUGH
        raise (NothingToPlotError if suited else UnsuitedStudyError)(
            f"a profile needs two losses with results in {_ENOUGH} {data.table.across}s, "
            f"got {len(errors)} losses and {count} {data.table.across}s"
        )
    made = figure(COLUMN, 2.3)
    ax = made.subplots()
    result = ratios(errors)
    finite = [r for values in result.values() for r in values if math.isfinite(r)]
    end = max(1 + 1.08 * (max(finite, default=1.0) - 1), 1.05)
    for row, values in result.items():
        _curve(ax, data, row, values, end)
    ax.set_xscale("log" if end > _WIDE else "linear")
    ax.set_xlim(1 - 0.015 * (end - 1), end)
    ax.set_ylim(-3, 104)
    _ticks(ax)
    ax.set_xlabel(
        f"{title_of(data.metric).replace('accuracy', 'error')} over the {data.table.across}'s lowest"
    )
    ax.set_ylabel(f"share of {count} {data.table.across}s, %")
    ax.grid(linewidth=0.3, color=INK, alpha=0.2)
    legend(made, [ax])
    return made


def _errors(data: Plotted) -> dict[str, list[float]]:
    """Return the test errors of all losses, in the regimes in which each loss has a result or a lost run."""
    rows, columns = data.table.rows, data.table.columns
    return in_common({row: [_error(data.cell(row, column)) for column in columns] for row in rows})


def _error(cell: Cell | None) -> float | None:
    if cell is not None and cell.confirmed.lost:
        return math.inf
    if cell is None or cell.value is None:
        return None
    return cell.value.mean if less_is_better(cell.metric) else 1 - cell.value.mean


def _curve(ax: Axes, data: Plotted, row: str, values: Sequence[float], end: float) -> None:
    """Draw one step function, with a marker wherever it rises."""
    look = data.line_look(*data.first(row))
    steps = sorted({1.0, *filter(math.isfinite, values)})
    shares = [100 * sum(value <= step for value in values) / len(values) for step in steps]
    (line,) = ax.step([*steps, end], [*shares, shares[-1]], where="post", label=row)
    rising = [i for i, share in enumerate(shares) if share > (shares[i - 1] if i else 0)]
    line.set(color=look.colour, linestyle=look.line, marker=look.marker, markevery=rising)


def _ticks(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter("{x:g}×")
    ax.xaxis.set_minor_locator(MaxNLocator(1))
