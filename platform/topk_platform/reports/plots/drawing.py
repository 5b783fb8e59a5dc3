"""What all plots share: figures with panels of equal size, one legend, and names that are broken into lines."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_platform.reports.plots.plot_data import styled

__all__ = ["ACROSS", "PAGE", "figure", "legend", "panels", "wrapped"]

PAGE = 7.2
"""The width of a page, in inches."""
ACROSS = 3
"""The most panels in a row."""

_COLUMN = 3.5  # the width of a journal's column, in inches
_DPI = 160
_CSS = 96  # a browser's pixels per inch
_ENTRY = 1.7  # the width of an entry of the legend, in inches


class ShownFigure(Figure):
    """A figure that a notebook can show.

    Usually pyplot makes a figure visible in a notebook, but these figures are made without pyplot.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        sink = io.BytesIO()
        with styled():
            self.savefig(sink, format="png", dpi=_DPI, facecolor="white")
        width, height = self.get_size_inches()
        return sink.getvalue(), {"width": round(_CSS * width), "height": round(_CSS * height)}


def figure(width: float, height: float) -> Figure:
    """Return an empty figure; width and height are in inches."""
    return ShownFigure(figsize=(width, height), layout="constrained")


def panels(
    names: Sequence[str], height: float, *, sharey: bool = False, across: int = ACROSS
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each name, and the panels' axes.

    A figure with a single column of panels is as wide as a column of text; any other is as wide as a page.

    Args:
        names: The panels' titles.
        height: The height of a panel, in inches.
        sharey: Whether the panels share their vertical axis.
        across: The most panels in a row.
    """
    across = min(len(names), across)
    down = math.ceil(len(names) / across)
    made = figure(_COLUMN if across == 1 else PAGE, height * down)
    axes: list[Axes] = list(made.subplots(down, across, squeeze=False, sharey=sharey).flat)
    for name, ax in zip(names, axes, strict=False):
        ax.set_title(wrapped(name, 34) if len(names) > 1 else "")
    for ax in axes[len(names) :]:
        ax.remove()
    return made, axes[: len(names)]


def legend(made: Figure, axes: Iterable[Axes]) -> None:
    """Put one legend under the figure, with an entry for each name in one of its axes; the figure becomes higher."""
    entries = {
        label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    width, height = made.get_size_inches()
    columns = max(1, min(len(entries), int(width / _ENTRY)))
    made.set_size_inches(width, height + 0.16 * math.ceil(len(entries) / columns))
    names = [wrapped(label, 30) for label in entries]
    made.legend(list(entries.values()), names, loc="outside lower center", ncols=columns)


def wrapped(name: str, width: int = 18) -> str:
    """Return a name in lines of at most this many letters, broken between its words, which ``_`` or ``/`` separate.

    Example:
        >>> wrapped("noised_imbalanced_topk_hinge").splitlines()
        ['noised imbalanced', 'topk hinge']
    """
    return textwrap.fill(name.replace("/", "/ ").replace("_", " "), width).replace("/ ", "/")
