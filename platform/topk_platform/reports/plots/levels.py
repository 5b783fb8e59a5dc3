"""Level sets of losses on the probability simplex of three classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.tri import TriContourSet

from topk_losses import use_backend
from topk_platform.errors import UserError, reason
from topk_platform.metrics import topk_credit
from topk_platform.reports.plots.drawing import panels, wrapped
from topk_platform.reports.plots.plot_data import INK, NothingToPlotError, Plotted, styled
from topk_platform.specs import Loss, Recipe, Scalar, numbers
from topk_platform.specs.checks import rounded
from topk_platform.specs.loss import Setting
from topk_platform.training.losses import build_loss

__all__ = ["level_sets", "levels", "simplex", "topk_error", "values_on"]

_Array = npt.NDArray[np.float64]
_SIDE = 80  # steps along an edge
_SCALE = 2.0  # garcin2022 draws the scores of 2·Δ
_TRUE = 2  # the true class; it has the upper corner
_COUNT = 1000  # training samples of each class, for losses that need this number
_BANDS = 12
_EDGE = 1e-6
# These are drawn as exact expectations, for which the number of samples has no meaning.
_DRAWING = ("noised_topk_hinge", "noised_imbalanced_topk_hinge")


class _Panel(NamedTuple):
    """A loss and the parameters with which it is drawn.

    Attributes:
        loss: The loss.
        own: The loss's own parameters.
    """

    loss: Loss
    own: dict[str, Scalar]

    @property
    def title(self) -> str:
        """The name of the loss and its parameters, independent of its label in a study."""
        name = wrapped(self.loss.name.rpartition(":")[2], 22)
        drawn = {n: v for n, v in self.own.items() if n != "samples" or self.loss.name not in _DRAWING}
        values = ", ".join(f"{parameter} {rounded(value)}" for parameter, value in drawn.items())
        return f"{name}\n{wrapped(values, 24)}" if drawn else name


def simplex(side: int = _SIDE) -> _Array:
    """Return a grid of points ``(n, 3)`` on the probability simplex, corners included; n = (side + 1)(side + 2) / 2.

    Example:
        >>> simplex(1)
        array([[1., 0., 0.],
               [0., 1., 0.],
               [0., 0., 1.]])
    """
    pairs = [(i, j) for i in range(side, -1, -1) for j in range(side - i, -1, -1)]
    return np.array([(i, j, side - i - j) for i, j in pairs], float) / side


def topk_error(scores: _Array, k: int) -> _Array:
    """Return the top-k error of class 2, as its expectation under random tie-breaking.

    Example:
        >>> topk_error(np.array([[0.5, 0.3, 0.2], [0.2, 0.4, 0.4], [1.0, 0.0, 0.0]]), 2)
        array([1. , 0. , 0.5])
    """
    target = torch.full((len(scores),), _TRUE)
    return np.asarray(1 - topk_credit(torch.from_numpy(scores), target, [k])[0].numpy(), float)


def values_on(loss: Loss, own: dict[str, Scalar], scores: _Array, k: int) -> _Array:
    """Return a loss's values for class 2 at some scores, in float64. The value of a noised loss is its expectation.

    Args:
        loss: The loss.
        own: The loss's own parameters.
        scores: The scores, ``(n, 3)``.
        k: K; at most 2 for losses that need at least K + 1 classes.

    Example:
        >>> scores = np.array([[0.0, 0.0, 0.0]])
        >>> [round(float(v), 4) for v in values_on(Loss("cross_entropy"), {}, scores, 2)]
        [1.0986]
    """
    module = build_loss(loss, own, k, torch.full((3,), _COUNT)).eval()
    for part in module.modules():
        if hasattr(part, "reduction"):
            part.reduction = "none"  # type: ignore[assignment]
    rows, labels = torch.from_numpy(scores), torch.full((len(scores),), _TRUE)
    with torch.no_grad(), use_backend("torch"):
        result = module(rows, labels)
        if result.shape != labels.shape:  # a user's loss that only computes the mean
            result = torch.stack(
                [module(row[None], label[None]) for row, label in zip(rows, labels, strict=True)]
            )
    return np.asarray(result.numpy(), float)


def levels(data: Plotted) -> Figure:
    """Draw the level sets of the study's losses by :func:`level_sets`.

    This needs no results. A searched parameter has its value in the first trial; a schedule has its last value.
    """
    losses = {arm.loss.label: arm.loss for arm in data.arms.values()}
    return level_sets(list(losses.values()))


def level_sets(losses: Sequence[Loss], k: int = 2) -> Figure:
    """Draw losses for three classes over the scores in 2·Δ, beside the top-K error. The true class is at the top.

    Each loss is scaled to [0, 1], as in garcin2022's Fig. 1 and 6; dark is low. Losses that need the sizes of the
    classes get equal sizes. Noised losses are drawn as their exact expectation.

    Args:
        losses: The losses, drawn with their first and fixed values. Losses with the same name and values are drawn
            once.
        k: K, 1 or 2.

    Raises:
        UserError: if k is neither 1 nor 2, or none of the losses can be computed for three classes.

    Source:
        Garcin et al., Stochastic smoothing of the top-K calibrated hinge loss for deep imbalanced classification,
        ICML 2022, Fig. 1 and appendix C.

    Example:
        >>> made = level_sets([Loss("cross_entropy"), Loss("smooth_topk_svm", fixed={"tau": 0.1})])
        >>> [ax.get_title(loc="left").splitlines()[0] for ax in made.axes[:3]]
        ['top-2 error', 'cross entropy', 'smooth topk svm']
    """
    if k not in (1, 2):
        raise UserError(f"k must be 1 or 2, because there are three classes, got {k!r}")
    drawn_once = {(panel.loss.name, panel.title): panel for panel in map(_panel_of, losses)}
    shown = list(drawn_once.values())
    points = simplex()
    result = [_rescaled(panel, _SCALE * points, k) for panel in shown]
    if all(isinstance(values, str) for values in result):
        raise NothingToPlotError("; ".join(f"{p.title}: {v}" for p, v in zip(shown, result, strict=True)))
    lines = max(panel.title.count("\n") + 1 for panel in shown)
    with styled():
        made, axes = panels([str(number) for number in range(len(shown) + 1)], 1.6 + 0.13 * lines, across=4)
        image = _triangle(axes[0], points, topk_error(points, k), f"top-{k} error")
        for ax, panel, values in zip(axes[1:], shown, result, strict=True):
            _fill(ax, points, panel, values)
        ticks = [0, 0.25, 0.5, 0.75, 1]
        made.colorbar(
            image, ax=axes, label="loss, scaled to [0, 1]", ticks=ticks, shrink=0.7, aspect=25, pad=0.02
        )
    return made


def _panel_of(loss: Loss) -> _Panel:
    return _Panel(loss, numbers(Setting.of(Recipe(epochs=1), loss, loss.first).own, 1, 2))


def _rescaled(panel: _Panel, scores: _Array, k: int) -> _Array | str:
    """Return a loss's values scaled to [0, 1], or the reason why it has none.

    A user's loss may fail for three classes.
    """
    try:
        values = values_on(panel.loss, panel.own, scores, k)
    except Exception as error:  # noqa: BLE001 - it may come from a user's code, and its panel shows it
        return reason(error)
    low, high = values.min(), values.max()
    if not math.isfinite(high - low):
        return "it is not finite everywhere"
    return np.asarray((values - low) / (high - low or 1.0), float)


def _fill(ax: Axes, points: _Array, panel: _Panel, values: _Array | str) -> None:
    if isinstance(values, str):
        ax.set_title(panel.title)
        ax.set_axis_off()
        ax.text(
            0.5, 0.5, wrapped(f"not drawn: {values}", 30), ha="center", transform=ax.transAxes, fontsize=6
        )
        return
    _triangle(ax, points, values, panel.title)


def _triangle(ax: Axes, points: _Array, values: _Array, title: str) -> TriContourSet:
    xs, ys = points[:, 1] + points[:, 2] / 2, points[:, 2] * math.sqrt(0.75)
    bands = np.linspace(-_EDGE, 1 + _EDGE, _BANDS + 1)  # so that values of exactly 0 or 1 are inside a band
    image = ax.tricontourf(xs, ys, values, levels=bands, cmap="cividis")
    image.set_rasterized(True)  # a dozen of them as vectors take a megabyte
    ax.plot([0, 1, 0.5, 0], [0, 0, math.sqrt(0.75), 0], color=INK, linewidth=0.6)
    ax.annotate("true class", (0.5, math.sqrt(0.75)), (5, -3), textcoords="offset points", fontsize=6)
    ax.set_title(title)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return image
