"""The catalogue of reports, with one entry for every format of a table and every kind of plot.

To add one, write its function in a module of its own, of a plot in ``plots/``, and add its entry here. The command
line, the help texts, the page and the tests read this catalogue. It imports nothing large, so that ``topk --help`` is
fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from topk_platform.results.table import Table

__all__ = ["PLOTS", "PLOT_FILES", "TABLE_FORMATS", "Plot", "as_format", "drawn_from", "function_of", "or_of"]

TABLE_FORMATS: Mapping[str, str] = {
    "rich": "result_tables:to_rich",
    "md": "result_tables:to_markdown",
    "csv": "table_data:to_csv",
    "latex": "result_tables:to_latex",
    "html": "result_tables:to_html",
}
"""The function that writes each format of a table, by the format's name. The first format is the default.

Each function takes the table and the metrics. It returns text, or for ``"rich"`` an object that rich prints.
"""


@dataclass(frozen=True)
class Plot:
    """A kind of plot.

    Args:
        function: The function that draws it. It takes a :class:`~topk_platform.reports.plots.Plotted` and returns a
            figure.
        title: The plot's caption in the page, which says what the plot shows and what its marks mean.
        source: The data that the plot needs. ``"table"``: the table alone, so that a file of findings is enough;
            ``"store"``: a store with ranks, epochs or trials; ``"data"``: a store and the test images.
    """

    function: str
    title: str
    source: Literal["table", "store", "data"] = "table"

    @property
    def option(self) -> str:
        """The option of ``topk plot`` that this kind takes besides those of all; empty for none."""
        return {"table": "metric", "store": "", "data": "data"}[self.source]


PLOTS: Mapping[str, Plot] = {
    "accuracy": Plot("plots.comparisons:accuracy", "Means of the test results with their 95 % intervals."),
    "differences": Plot(
        "plots.comparisons:differences",
        "Paired differences to the baseline with 95 % intervals; full markers: Holm-corrected p below 0.05.",
    ),
    "topk": Plot(
        "plots.curves:topk",
        "Accuracy over all k, from the kept ranks; bands are 95 % t-intervals over seeds.",
        "store",
    ),
    "guesses": Plot(
        "plots.pictures:guesses",
        "Test images with their K guesses, each beside an image of every guessed class; the true class is framed.",
        "data",
    ),
    "training": Plot(
        "plots.curves:training",
        "Validation accuracy of the confirmed runs; bands are 95 % t-intervals over seeds.",
        "store",
    ),
    "search": Plot(
        "plots.curves:search", "Search trials by parameter: how far each is below its arm's best.", "store"
    ),
}
"""Every kind of plot by name, in the order of the page."""

PLOT_FILES = ("svg", "png", "pdf")
"""The types of the files that a plot can be written to."""


def function_of(name: str) -> Callable[..., Any]:
    """Return a function of the catalogue; its module is imported on first use.

    Args:
        name: The function's module in ``topk_platform.reports`` and its name, such as ``"result_tables:to_html"``.
    """
    function: Callable[..., Any] = resolve_name(f"topk_platform.reports.{name}")
    return function


def as_format(output: str, table: Table, metrics: Sequence[str] = ()) -> object:
    """Return a table in a format, as text or as an object that rich prints.

    Args:
        output: One of ``TABLE_FORMATS``.
        table: The table.
        metrics: The metrics to show; by default the study's, and in ``"csv"`` all.

    Raises:
        UserError: if a metric is not recorded.
    """
    return function_of(TABLE_FORMATS[output])(table, metrics)


def drawn_from(*sources: str) -> str:
    """Return the names of the plots that are drawn from these sources, in words for a help text.

    Args:
        sources: The sources, as in :class:`Plot`; by default all.

    Example:
        >>> drawn_from("table")
        'accuracy or differences'
    """
    return or_of(name for name, plot in PLOTS.items() if not sources or plot.source in sources)


def or_of(names: Iterable[str]) -> str:
    """Return names joined by commas and "or", for a help text or a message.

    Example:
        >>> or_of(PLOT_FILES)
        'svg, png or pdf'
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
