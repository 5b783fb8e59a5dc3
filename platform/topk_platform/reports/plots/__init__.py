"""Plots of a study's results. Each kind has a function that returns a matplotlib figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topk_platform.errors import UserError, unknown_name
from topk_platform.reports.catalogue import PLOT_FILES, PLOTS, function_of, or_of
from topk_platform.reports.plots.plot_data import NothingToPlotError, Plotted, styled
from topk_platform.results.from_store import Held, read
from topk_platform.results.table import Table, main_metric
from topk_platform.specs import Study
from topk_platform.specs.fields import check_call

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "NothingToPlotError",
    "Plotted",
    "check_options",
    "draw",
    "plot",
    "plotted",
    "written",
]


def plot(
    study: Study,
    kind: str,
    *,
    store: str | Path = "runs",
    metric: str = "",
    only: str | Sequence[str] | None = None,
    data: str | Path | None = None,
) -> Figure:
    """Return a figure of a study's results in a store.

    Args:
        study: The study.
        kind: One of ``PLOTS`` in ``topk_platform.reports.catalogue``, such as ``"differences"``.
        store: Folder or URI of the results.
        metric: The test metric, for plots that are drawn from the table; by default the metric by which most arms
            select, if tables show it.
        only: A glob over the names of the arms, ``regime/model/loss``, or several.
        data: The folder of datasets, for plots with test images; by default that of the last run.

    Raises:
        UserError: if the store has no results of the study, there is no such kind or metric, the plot does not use
            ``metric`` or ``data`` that is given, or there is nothing to draw for this kind.
    """
    check_call(plot, locals())
    check_options(kind, metric=metric, data=data)
    held = read(study, store, curves=True, needed=True)
    shown = plotted(held, metric=metric, only=only)
    if PLOTS[kind].source != "data":
        return draw(kind, shown)
    from topk_platform.data import data_at  # noqa: PLC0415 - torch, which only plots with test images need

    with data_at(held.data_folder(data)):
        return draw(kind, shown)


def check_options(kind: str, **options: object) -> None:
    """Raise ``UserError`` for a kind of plot that is not known, or an option that it does not use."""
    if kind not in PLOTS:
        raise unknown_name("kind of plot", kind, PLOTS)
    for option, value in options.items():
        if value and option != PLOTS[kind].option:
            taking = or_of(name for name, known in PLOTS.items() if known.option == option)
            raise UserError(f"--{option} is for the plot {taking}, got {str(value)!r} for the plot {kind!r}")


def plotted(results: Held | Table, *, metric: str = "", only: str | Sequence[str] | None = None) -> Plotted:
    """Return the data that plots are drawn from.

    Args:
        results: The study's results in the store, with the epochs of its trials; or the table of findings, from which
            plots of ranks, epochs or trials cannot be drawn.
        metric: As in :func:`plot`.
        only: As in :func:`plot`, for results in a store.

    Raises:
        UserError: if the study does not have the metric, or findings do not, or ``only`` matches no arm.
    """
    held = None if isinstance(results, Table) else results
    known = results.study.show if held is None else results.study.tabled
    if metric and metric not in known:
        raise UserError(f"--metric must be one of {list(known)}, got {metric!r}")
    if isinstance(results, Table):
        table = results
    else:
        table = results.table_of(results.study.only(only).arms) if only else results.table
    return Plotted(held, table, metric or main_metric(table.study))


def draw(kind: str, data: Plotted) -> Figure:
    """Return a figure of this kind; raise ``NothingToPlotError`` if there is nothing to draw."""
    with styled():
        figure: Figure = function_of(PLOTS[kind].function)(data)
    return figure


def written(made: Figure, suffix: str) -> bytes:
    """Return a figure as the bytes of a file; the same figure always gives the same bytes.

    Args:
        made: The figure.
        suffix: One of ``PLOT_FILES``.

    Raises:
        UserError: if the suffix is not one of these.
    """
    if suffix not in PLOT_FILES:
        raise UserError(f"a plot is written as {or_of(PLOT_FILES)}, got {suffix!r}")
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
    sink = io.BytesIO()
    with styled():
        made.savefig(sink, format=suffix, metadata=undated, dpi=300, transparent=suffix == "svg")
    return sink.getvalue()
