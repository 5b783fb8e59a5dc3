"""The critical-difference diagram: the losses by their mean ranks over regimes."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_platform.reports.plots.drawing import figure
from topk_platform.reports.plots.plot_data import NothingToPlotError, Plotted, UnsuitedStudyError
from topk_platform.reports.plots.style import COLUMN, INK
from topk_platform.reports.words import probability, title_of, wrapped
from topk_platform.results.statistics import Ranking
from topk_platform.results.statistics.regimes import FEWEST_LOSSES, FEWEST_REGIMES

__all__ = ["ranks"]


def ranks(data: Plotted) -> Figure:
    """Draw the losses' mean ranks over the columns; a bar joins losses that do not differ (Nemenyi's test at 0.05).

    Source:
        Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 2006.
    """
    result = data.table.ranking(data.metric)
    if result is None:
        suited = len(data.table.rows) >= FEWEST_LOSSES and len(data.table.columns) >= FEWEST_REGIMES
        raise (NothingToPlotError if suited else UnsuitedStudyError)(
            f"ranks need three losses with results in five {data.table.across}s, got {len(data.table.rows)} losses "
            f"and {len(data.table.columns)} {data.table.across}s"
        )
    names = list(result.mean_ranks)
    made = figure(COLUMN, 1.0 + 0.21 * len(names) + 0.07 * len(result.alike))
    ax = made.subplots()
    for position, (row, rank) in enumerate(result.mean_ranks.items()):
        look = data.look(*data.first(row))
        ax.plot([rank], [position], look.marker, color=look.colour, markersize=4.5, zorder=3)
        ax.annotate(
            f"{rank:.1f}", (rank, position), (5, 0), textcoords="offset points", va="center", fontsize=6
        )
    _bars(ax, result, names)
    ax.set_yticks(range(len(names)), [wrapped(name, 24) for name in names])
    ax.set_xlim(0.7, len(names) + 0.6)
    ax.set_ylim(len(names) - 0.4 + 0.3 * len(result.alike), -0.6)
    ax.set_xlabel(
        f"mean rank by {title_of(data.metric)}\nover {result.regimes} {data.table.across}s, 1 is best\n"
        f"Friedman {probability(result.p)}; critical difference {result.critical:.2f}"
    )
    ax.grid(axis="x", linewidth=0.3, color=INK, alpha=0.2)
    return made


def _bars(ax: Axes, ranking: Ranking, names: list[str]) -> None:
    for level, group in enumerate(ranking.alike):
        ends = [ranking.mean_ranks[group[0]] - 0.05, ranking.mean_ranks[group[-1]] + 0.05]
        ax.plot(ends, [len(names) - 0.3 + 0.3 * level] * 2, color=INK, linewidth=2.2, solid_capstyle="butt")
