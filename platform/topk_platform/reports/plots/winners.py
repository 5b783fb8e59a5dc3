"""A map of regimes that differ in two numbers: the loss with the largest lead over the baseline in each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from topk_platform.reports.plots.axis import numbers_of
from topk_platform.reports.plots.drawing import panels
from topk_platform.reports.plots.plot_data import NothingToPlotError, Plotted, UnsuitedStudyError
from topk_platform.reports.plots.style import PAGE
from topk_platform.reports.words import metric_title, wrapped
from topk_platform.results.cells import Cell
from topk_platform.results.statistics import Estimate
from topk_platform.specs import Arm, digits_of, scale_of

__all__ = ["Verdict", "verdict_of", "winners"]

_BASELINE, _OPEN = "#D4D4D4", "#FFFFFF"
_ROW = 0.52  # inches
_FAINT = 0.3  # the strength of a loss's colour at the smallest lead
_DARK = 0.55  # below this luminance the text is white


class Verdict(NamedTuple):
    """How the losses compare with the baseline in one regime, by the table's marks.

    Attributes:
        leader: The arm with the largest lead over the baseline among those that are marked better; None if none is.
        lead: The leader's difference to the baseline.
        better: How many arms are marked better than the baseline.
        worse: How many arms are marked worse.
        compared: How many arms were compared with the baseline.
        once: Whether nothing was tested, because each difference has an arm that was searched once.
    """

    leader: Arm | None
    lead: Estimate | None
    better: int
    worse: int
    compared: int
    once: bool = False


def verdict_of(cells: Sequence[tuple[Arm, Cell]]) -> Verdict:
    """Return how the losses of one regime compare with the baseline, by the marks of their cells.

    The leader has the largest lead, but it was not tested against the other losses that are better than the baseline.

    Args:
        cells: The cells of the arms that have a difference to the baseline.
    """
    better = [(arm, cell.difference) for arm, cell in cells if cell.mark == "better" and cell.difference]
    leader, lead = max(better, key=lambda one: abs(one[1].mean), default=(None, None))
    worse = sum(cell.mark == "worse" for _, cell in cells)
    once = all(cell.difference is not None and cell.difference.once for _, cell in cells)
    return Verdict(leader, lead, len(better), worse, len(cells), once)


def winners(data: Plotted) -> Figure:
    """Draw regimes as a map over the two numbers in which they differ, in the colour of the loss that leads in each.

    The colour is deeper if the lead is larger. A regime is grey if every other loss is marked worse than the baseline.
    It is white if no loss is marked better and some are not marked worse, or if nothing is tested because losses were
    searched once.
    """
    numbers = numbers_of([arm.regime for arm in data.arms.values()])
    if len(numbers) != 2:
        raise UnsuitedStudyError("its regimes must differ in exactly two numbers and in nothing else")
    result = _verdicts(data)
    if not result:
        raise NothingToPlotError(f"there are no differences of {data.metric} to a baseline to draw")
    shown = list(dict.fromkeys(model for model, _ in result))
    x_of, y_of = numbers.values()
    xs, ys = sorted(set(x_of.values())), sorted(set(y_of.values()))
    made, axes = panels(shown, 0.7 + _ROW * len(ys), across=1)
    made.set_size_inches(min(1.2 + 1.15 * len(xs), PAGE), made.get_size_inches()[1])
    most = max((abs(v.lead.mean) for v in result.values() if v.lead), default=1.0)
    for (model, regime), verdict in result.items():
        at = xs.index(x_of[regime]), ys.index(y_of[regime])
        _field(axes[shown.index(model)], data, at, verdict, most)
    for model, ax in zip(shown, axes, strict=True):
        _frame(ax, list(numbers), xs, ys)
        title = f"test {metric_title(data.metric)}, ahead of {data.study.baseline} by"
        if all(verdict.once for (model_of, _), verdict in result.items() if model_of == model):
            title = f"test {metric_title(data.metric)}: one search, nothing is tested"
        ax.set_title(f"{model}: {title}" if len(shown) > 1 else title)
    return made


def _verdicts(data: Plotted) -> Mapping[tuple[str, str], Verdict]:
    """Return the verdicts by model and regime."""
    cells: dict[tuple[str, str], list[tuple[Arm, Cell]]] = {}
    for key, arm in data.arms.items():
        cell = data.table.cells.get((*key, data.metric))
        if cell is not None and cell.difference is not None:
            cells.setdefault((arm.model.label, arm.regime.name), []).append((arm, cell))
    return {key: verdict_of(result) for key, result in cells.items()}


def _field(ax: Axes, data: Plotted, at: tuple[int, int], verdict: Verdict, most: float) -> None:
    colour, text = _colour_and_text(data, verdict, most)
    x, y = at
    ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="#BDBDBD", linewidth=0.5))
    ink = "#FFFFFF" if _luminance(colour) < _DARK else "#000000"
    ax.text(x, y, text, ha="center", va="center", fontsize=6, color=ink, linespacing=1.15)


def _colour_and_text(data: Plotted, verdict: Verdict, most: float) -> tuple[tuple[float, float, float], str]:
    if verdict.leader is not None and verdict.lead is not None:
        scale, label = scale_of(data.metric), verdict.leader.loss.label
        deep = _FAINT + (1 - _FAINT) * abs(verdict.lead.mean) / most
        red, green, blue = (1 + deep * (part - 1) for part in to_rgb(data.looks[label].colour))
        lead, half = scale * abs(verdict.lead.mean), scale * verdict.lead.half_width
        digits = digits_of(data.metric)
        size = f"{lead:.{digits}f} ± {half:.{digits}f}"
        return (red, green, blue), f"{wrapped(label, 16)}\n{size} · {verdict.better} of {verdict.compared} ▲"
    if verdict.worse == verdict.compared:
        return to_rgb(_BASELINE), f"{wrapped(data.study.baseline or '', 16)}\nall {verdict.compared} others ▼"
    if verdict.once:
        return to_rgb(_OPEN), "one search:\nnot tested"
    return to_rgb(_OPEN), f"no ▲\n{verdict.worse} of {verdict.compared} ▼"


def _luminance(colour: tuple[float, float, float]) -> float:
    red, green, blue = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _frame(ax: Axes, titles: Sequence[str], xs: Sequence[float], ys: Sequence[float]) -> None:
    ax.set_xlim(-0.5, len(xs) - 0.5)
    ax.set_ylim(-0.5, len(ys) - 0.5)
    ax.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
    ax.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
    ax.set_xlabel(titles[0])
    ax.set_ylabel(titles[1])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_color("#BDBDBD")
