"""The data that plots are drawn from, the look of each loss, and the error where there is nothing to draw."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from topk_platform.errors import UserError
from topk_platform.records.history import ArmHistory
from topk_platform.records.rows import Row
from topk_platform.results.from_store import Held
from topk_platform.results.intervals import Estimate
from topk_platform.results.table import Table, row_and_column
from topk_platform.specs import Arm, Study

__all__ = ["INK", "Look", "NothingToPlotError", "Plotted", "looks", "styled"]

INK = "#1b1b1b"
"""The colour of text and of the baseline; a page in dark mode replaces it."""

_MARKERS = "osD^vPX"
# The palette of Okabe and Ito, with a grey in place of its yellow, which is too pale for lines on white.
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A7A7A")

_SETTINGS: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "legend.fontsize": 6.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "axes.formatter.useoffset": False,
    "axes.titlelocation": "left",
    "figure.dpi": 200,
    "svg.hashsalt": "topk",  # so that the same figure has the same bytes
    "svg.fonttype": "path",  # so that text has the same width on every machine
    "pdf.fonttype": 42,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the settings above to all figures that are drawn or written inside this context, and to no others."""
    import matplotlib as mpl  # noqa: PLC0415 - only plots need it

    with mpl.rc_context(dict(_SETTINGS)):  # type: ignore[arg-type]  # matplotlib types its keys as literals
        yield


@dataclass(frozen=True)
class Look:
    """How a loss is drawn.

    Args:
        colour: The colour as ``#rrggbb``.
        marker: A marker of matplotlib.
        line: A line style of matplotlib.
    """

    colour: str
    marker: str
    line: str = "-"


def looks(labels: Iterable[str], baseline: str | None = None) -> dict[str, Look]:
    """Return how losses are drawn, by their labels: each by its position in the study, in a colour of its own.

    The baseline is drawn in the colour of text. The first losses have the colours of Okabe and Ito, which colour-blind
    readers can tell apart; markers and line styles tell the others apart as well.

    Args:
        labels: The labels of the losses, in the order of the study.
        baseline: The label of the baseline; None for none.

    Example:
        >>> looks(["cross_entropy", "ldam"], "cross_entropy")["ldam"]
        Look(colour='#0072B2', marker='s', line='-')
    """
    others = [label for label in dict.fromkeys(labels) if label != baseline]
    result = {baseline: Look(INK, _MARKERS[0])} if baseline is not None else {}
    for position, label in enumerate(others):
        line = ("-", "--", ":", "-.")[position // len(_PALETTE) % 4]
        result[label] = Look(_colour(position), _MARKERS[(position + 1) % len(_MARKERS)], line)
    return result


def _colour(position: int) -> str:
    """Return the colour of a position: of the palette, then hues that are far from one another."""
    if position < len(_PALETTE):
        return _PALETTE[position]
    hue = position * (math.sqrt(5) - 1) / 2 % 1
    parts = colorsys.hls_to_rgb(hue, (0.35, 0.5, 0.65)[position % 3], 0.6)
    return "#" + "".join(f"{round(255 * part):02X}" for part in parts)


class NothingToPlotError(UserError):
    """There is nothing to draw for a kind of plot; the message says why."""


@dataclass(frozen=True)
class Plotted:
    """The data that plots are drawn from.

    Args:
        source: The results in the store, with the epochs of the trials; None for findings, which have only a table.
        table: The table of the arms to draw.
        metric: The test metric to draw, in plots that are drawn from the table.
    """

    source: Held | None
    table: Table
    metric: str

    @property
    def study(self) -> Study:
        """The study."""
        return self.table.study

    @property
    def held(self) -> Held:
        """The results in the store; raises ``NothingToPlotError`` if there is only a table."""
        if self.source is None:
            raise NothingToPlotError("it is drawn from trials, which findings do not have")
        return self.source

    @cached_property
    def arms(self) -> dict[tuple[str, str], Arm]:
        """The arms that are drawn, by row and column of the table."""
        result = {row_and_column(self.study, self.table.across, arm): arm for arm in self.study.arms}
        return {key: arm for key, arm in result.items() if key in self.table.confirmations}

    @cached_property
    def looks(self) -> dict[tuple[str, str], Look]:
        """How each arm is drawn, by row and column: as its loss is in all plots, whichever arms are shown."""
        of_losses = looks((arm.loss.label for arm in self.study.arms), self.study.baseline)
        return {key: of_losses[arm.loss.label] for key, arm in self.arms.items()}

    def estimates(self, *, difference: bool) -> dict[tuple[str, str], Estimate]:
        """Return the means of the metric to draw, or their differences to the baseline, by row and column."""
        cells = {key: self.table.cells.get((*key, self.metric)) for key in self.arms}
        values = {key: c.difference if difference else c.value for key, c in cells.items() if c is not None}
        return {key: estimate for key, estimate in values.items() if estimate is not None}

    def columns(self, keys: Iterable[tuple[str, str]]) -> list[str]:
        """Return the columns of some arms, given by row and column, in the order of the table."""
        drawn = {column for _, column in keys}
        return [column for column in self.table.columns if column in drawn]

    def completed(self, key: tuple[str, str]) -> list[Row]:
        """Return the rows of an arm's completed confirmations, in the order of their seeds."""
        rows = sorted(self.table.confirmations.get(key, {}).items())
        return [row for _, row in rows if row["status"] == "completed"]

    def history(self, arm: Arm) -> ArmHistory:
        """Return an arm's history."""
        return self.held.histories[self.study.arm_id(arm)]
