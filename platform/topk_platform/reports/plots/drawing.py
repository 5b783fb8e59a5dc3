"""Parts that several kinds of plot share: figures, panels of equal size, frames, turned names and legends."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from topk_platform.reports.plots.plot_data import COLUMN, OTHERS, PAGE, styled

__all__ = [
    "as_they_are",
    "figure",
    "frame",
    "legend",
    "legend_of",
    "name_vertical",
    "panels",
    "shortened",
    "turn_names",
    "wrapped",
]

_ACROSS = 3
_DPI = 160
_CSS = 96  # a browser's pixels per inch


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
    names: Sequence[str], height: float, *, sharey: bool = False, sharex: bool = False, across: int = _ACROSS
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each name, and the panels' axes.

    A figure with a single column of panels is as wide as a column of text; any other is as wide as a page.

    Args:
        names: The panels' titles.
        height: The height of a panel, in inches.
        sharey: Whether the panels share their vertical axis.
        sharex: Whether the panels share their horizontal axis.
        across: The most panels in a row.
    """
    across = min(len(names), across)
    down = math.ceil(len(names) / across)
    made = figure(COLUMN if across == 1 else PAGE, height * down)
    grid = made.subplots(down, across, squeeze=False, sharey=sharey, sharex=sharex)
    axes: list[Axes] = list(grid.flat)
    for name, ax in zip(names, axes, strict=False):
        ax.set_title(wrapped(name, 34) if len(names) > 1 else "")
    for ax in axes[len(names) :]:
        ax.remove()
    return made, axes[: len(names)]


def name_vertical(axes: Sequence[Axes], text: str) -> None:
    """Write the name of the vertical axis beside the first panel of each row.

    Args:
        axes: The axes from :func:`panels`.
        text: The name; if it is long, it is broken into lines.
    """
    for ax in axes[:: min(len(axes), _ACROSS)]:
        ax.set_ylabel(textwrap.fill(text, 38))


def legend(made: Figure, axes: Iterable[Axes]) -> None:
    """Put one legend under the figure, with an entry for each name that is used in one of the axes.

    All grey lines share one entry, such as "7 others".

    Args:
        made: The figure.
        axes: Its axes.
    """
    handles: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(str(label), handle)
    others = {name: handle for name, handle in handles.items() if _is_other(handle)}
    handles = {name: handle for name, handle in handles.items() if name not in others}
    if others:
        handles[f"{len(others)} others"] = next(iter(others.values()))
    if handles:
        legend_of(made, list(handles.values()), [wrapped(label, 30) for label in handles])


def _is_other(handle: Artist) -> bool:
    colour = getattr(handle, "get_color", None)
    return colour is not None and colour() == OTHERS


def legend_of(made: Figure, handles: Sequence[Artist], names: Sequence[str], inches: float = 1.7) -> None:
    """Put a legend under the figure, and make the figure higher by the legend's height.

    Args:
        made: The figure.
        handles: What the legend shows, such as lines.
        names: Their names.
        inches: The width of an entry, in inches.
    """
    width, height = made.get_size_inches()
    columns = max(1, min(len(handles), int(width / inches)))
    lines = math.ceil(len(handles) / columns)
    made.set_size_inches(width, height + 0.16 * lines)
    made.legend(list(handles), list(names), loc="outside lower center", ncols=columns)


def as_they_are(name: str) -> str:
    r"""Return a name of the user's data for a plot, where text between two dollar signs would be a formula.

    Example:
        >>> print(as_they_are("$_$"))
        \$_\$
    """
    return name.replace("$", r"\$")


def frame(
    ax: Axes, corner: tuple[float, float], size: tuple[float, float], colour: str, width: float
) -> None:
    """Draw a frame.

    Args:
        ax: The axes.
        corner: The corner of the frame with the smallest coordinates.
        size: The frame's width and height, in the units of the axes.
        colour: The colour of the line.
        width: The width of the line, in points.
    """
    ax.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linewidth=width))


def turn_names(ax: Axes, names: Sequence[str]) -> None:
    """Turn the names on the horizontal axis if there are more than four."""
    if len(names) > _LEVEL:
        for label in ax.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")


_LEVEL = 4  # up to so many names fit side by side


def shortened(name: str, most: int) -> str:
    """Return a name without its middle if it has more than ``most`` letters, with a sign for what is left out.

    Long names of classes often begin with a number or a family, and end with what tells them apart.

    Example:
        >>> shortened("02912_Animalia_Chordata_Aves_Corvus_corax", 20)
        '02912_Anim…vus_corax'
    """
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[len(name) - end :]}"


def wrapped(name: str, width: int = 18) -> str:
    """Return a name broken into lines between its words.

    Args:
        name: The name, with ``_`` or ``/`` between its words.
        width: The most letters in a line. A longer word is broken too, after a hyphen if it has one.

    Example:
        >>> wrapped("noised_imbalanced_topk_hinge").splitlines()
        ['noised imbalanced', 'topk hinge']
    """
    lines = [""]
    words = name.replace("/", "/ ").replace("_", " ").split()
    for word in (part for whole in words for part in textwrap.wrap(whole, width)):
        joined = f"{lines[-1]} {word}".strip()
        if len(joined) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = joined
    return "\n".join(lines).replace("/ ", "/")
