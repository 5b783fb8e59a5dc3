"""The level sets on the losses' pages, drawn by the project's own plot when the site is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.reports.plots.levels import level_sets
from topk_platform.specs import Loss

__all__ = ["setup"]


def _draw(app: Sphinx) -> None:
    """Draw them all, K = 2, into the folder of the losses' pages.

    With classes of one size, balanced softmax and its relatives are cross-entropy and have no picture.
    """
    folder = Path(app.srcdir) / "losses" / "_pictures"
    folder.mkdir(exist_ok=True)
    for name, entry in LOSS_CATALOGUE.items():
        if entry.drawn:
            losses = [Loss(name, fixed=dict(fixed)) for fixed in entry.drawn]
            level_sets(losses).savefig(folder / f"{name}.svg")


def setup(app: Sphinx) -> dict[str, Any]:
    """Draw before the pages are read."""
    app.connect("builder-inited", _draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
