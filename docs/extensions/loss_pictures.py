"""The level sets on the losses' pages, drawn when the site is built.

Each picture shows a loss for three classes over the scores in 2·Δ, beside the top-2 error, as garcin2022's Fig. 1 and
6. The true class is at the top. Each loss is scaled to [0, 1]; dark is low.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_losses import use_backend
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.metrics import topk_credit
from topk_platform.reports.plots.drawing import panels, wrapped
from topk_platform.reports.plots.plot_data import INK, styled
from topk_platform.specs import Loss, Scalar
from topk_platform.training.losses import build_loss

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["level_sets", "setup", "simplex", "values_on"]

_Array = npt.NDArray[np.float64]
_K, _TRUE = 2, 2  # the true class has the upper corner
_COUNT = 1000  # training samples of each class, for losses that need this number


def simplex(side: int = 80) -> _Array:
    """Return a grid of points ``(n, 3)`` on the probability simplex, corners included; n = (side + 1)(side + 2) / 2."""
    pairs = [(i, j) for i in range(side, -1, -1) for j in range(side - i, -1, -1)]
    return np.array([(i, j, side - i - j) for i, j in pairs], float) / side


def values_on(name: str, fixed: Mapping[str, Scalar], scores: _Array) -> _Array:
    """Return a loss's values for class 2 at scores ``(n, 3)``, in float64; of a noised loss its exact expectation."""
    module = build_loss(Loss(name), dict(fixed), _K, torch.full((3,), _COUNT)).eval()
    for part in module.modules():
        if hasattr(part, "reduction"):
            part.reduction = "none"  # type: ignore[assignment]
    with torch.no_grad(), use_backend("torch"):
        return np.asarray(module(torch.from_numpy(scores), torch.full((len(scores),), _TRUE)), float)


@styled()
def level_sets(name: str) -> Figure:
    """Return the level sets of a loss with each of its settings in the catalogue."""
    points = simplex()
    target = torch.full((len(points),), _TRUE)
    values = {
        f"top-{_K} error": np.asarray(1 - topk_credit(torch.from_numpy(points), target, [_K])[0], float)
    }
    for fixed in LOSS_CATALOGUE[name].drawn:
        title = wrapped(", ".join(f"{parameter} {value}" for parameter, value in fixed.items()), 24)
        values[f"{wrapped(name, 22)}\n{title}".rstrip()] = values_on(name, fixed, 2 * points)
    made, axes = panels(list(values), 1.6 + 0.13 * max(title.count("\n") + 1 for title in values), across=4)
    for ax, (title, of_loss) in zip(axes, values.items(), strict=True):
        _triangle(ax, points, (of_loss - of_loss.min()) / (np.ptp(of_loss) or 1.0), title)
    return made


def _triangle(ax: Axes, points: _Array, values: _Array, title: str) -> None:
    xs, ys = points[:, 1] + points[:, 2] / 2, points[:, 2] * math.sqrt(0.75)
    bands = np.linspace(-1e-6, 1 + 1e-6, 13)  # so that values of exactly 0 or 1 are inside a band
    image = ax.tricontourf(xs, ys, values, levels=bands, cmap="cividis")
    image.set_rasterized(True)  # as vectors, a dozen of them take a megabyte
    ax.plot([0, 1, 0.5, 0], [0, 0, math.sqrt(0.75), 0], color=INK, linewidth=0.6)
    ax.annotate("true class", (0.5, math.sqrt(0.75)), (5, -3), textcoords="offset points", fontsize=6)
    ax.set_title(title)
    ax.set_aspect("equal")
    ax.set_axis_off()


def _draw(app: Sphinx) -> None:
    """Draw them all into the folder of the losses' pages.

    With classes of one size, balanced softmax and its relatives are cross-entropy and have no picture.
    """
    folder = Path(app.srcdir) / "losses" / "_pictures"
    folder.mkdir(exist_ok=True)
    for name, entry in LOSS_CATALOGUE.items():
        if entry.drawn:
            level_sets(name).savefig(folder / f"{name}.svg")


def setup(app: Sphinx) -> dict[str, Any]:
    """Draw before the pages are read."""
    app.connect("builder-inited", _draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
